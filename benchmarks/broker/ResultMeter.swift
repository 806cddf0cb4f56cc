import Base
import JSON
import Kafka
import Telemetry

/// Follows `push.results` and measures what Bugle adds to a push, from the times that results
/// state and the timestamp of their records, in whole milliseconds. Results of marketing are
/// counted and no more.
final class ResultMeter {
    private let reader: TopicReader
    private let parser = JSONParser()
    /// Results since the last report.
    private(set) var count = 0
    /// Results of marketing since the meter began.
    private(set) var others = 0
    private var accepted = 0
    private var payloadBytes: Int64 = 0
    /// From consumption to the first HEADERS.
    private var before = LatencyHistogram()
    /// From the answer to the hand-over of the result to the producer.
    private var after = LatencyHistogram()
    /// The two together: what a push waits inside Bugle, without the gateway's share.
    private var added = LatencyHistogram()
    /// From the publisher's timestamp to consumption: linger, broker and fetch.
    private var arrival = LatencyHistogram()
    /// From the answer to the result in this reader's hands: linger, broker and fetch again.
    private var delivery = LatencyHistogram()
    private var gateway = LatencyHistogram()
    /// From the publisher's timestamp to the gateway's answer.
    private var whole = LatencyHistogram()

    init(_ bootstrapServers: String) throws {
        reader = try TopicReader(
            KafkaConfiguration(
                bootstrapServers: bootstrapServers, clientID: "meter",
                properties: ["fetch.wait.max.ms": "5"]),
            topics: ["push.results"], from: .end)
        // Where the end is becomes known with the first answers: results of before must not count,
        // those that come from now on must.
        _ = reader.readToEnd(deadline: SystemTime.shared.monotonic + .seconds(10)) { _ in }
    }

    func read(waitingUpTo limit: TimeSpan) {
        reader.read(max: 5000, timeout: limit) { record in
            guard let value = record.value, let root = try? parser.parse(value) else { return }
            take(root, producedAt: record.timestampMillis ?? 0)
        }
    }

    private func take(_ root: JSONValue, producedAt: Int64) {
        if root["class"]?.string == "marketing" {
            others += 1
            return
        }
        count += 1
        guard let bytes = root["outcome"]?.string, bytes == "accepted",
            let consumed = root["consumed_at"]?.int64, let sent = root["first_sent_at"]?.int64,
            let settled = root["settled_at"]?.int64, let published = root["event_time"]?.int64
        else { return }
        accepted += 1
        payloadBytes += root["payload_bytes"]?.int64 ?? 0
        before.record(.milliseconds(sent - consumed))
        after.record(.milliseconds(producedAt - settled))
        added.record(.milliseconds(sent - consumed + producedAt - settled))
        arrival.record(.milliseconds(consumed - published))
        delivery.record(.milliseconds(SystemTime.shared.wall.value - settled))
        gateway.record(.milliseconds(settled - sent))
        whole.record(.milliseconds(settled - published))
    }

    func reset() {
        read(waitingUpTo: .zero)
        (count, accepted, payloadBytes) = (0, 0, 0)
        (before, after, added) = (LatencyHistogram(), LatencyHistogram(), LatencyHistogram())
        (arrival, delivery) = (LatencyHistogram(), LatencyHistogram())
        (gateway, whole) = (LatencyHistogram(), LatencyHistogram())
    }

    /// Everything since the last report as a JSON object.
    func report() -> String {
        read(waitingUpTo: .zero)
        let parts = [
            "\"results\": \(count)", "\"accepted\": \(accepted)",
            "\"payload_bytes\": \(accepted == 0 ? 0 : payloadBytes / Int64(accepted))",
            Self.text("before_headers", before), Self.text("after_answer", after),
            Self.text("added", added), Self.text("arrival", arrival),
            Self.text("delivery", delivery), Self.text("gateway", gateway),
            Self.text("whole", whole),
        ]
        reset()
        return "{" + parts.joined(separator: ", ") + "}"
    }

    private static func text(_ name: String, _ histogram: LatencyHistogram) -> String {
        let quantiles = [0.5, 0.9, 0.99, 0.999].map { share in
            "\"p\(share == 0.999 ? "999" : String(Int(share * 100)))_ms\": "
                + "\(histogram.quantile(share).millis)"
        }
        return "\"\(name)\": {" + quantiles.joined(separator: ", ") + "}"
    }
}
