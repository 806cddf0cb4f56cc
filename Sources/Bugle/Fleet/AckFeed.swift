internal import Base
internal import EventLoop
internal import JSON
internal import Kafka
internal import Pipeline
internal import Synchronization
internal import Telemetry

/// Reads what devices acknowledge, from now on, where there is such a topic.
internal final class AckFeed: Sendable {
    private let isStopping = SharedFlag()
    private let thread: WorkerThread

    /// How long one turn waits for records.
    private static let turn = TimeSpan.milliseconds(200)

    /// Starts reading.
    init(
        _ kafka: KafkaConfiguration, topic: String, into sample: AckSample, log: Log
    ) throws(Failure) {
        let isStopping = isStopping
        do throws(SystemError) {
            thread = try WorkerThread(name: "acks") {
                Self.run(kafka, topic, sample, isStopping, log)
            }
        } catch {
            throw .failed("the reader of acknowledgements has no thread: \(error)")
        }
    }

    func stop() {
        isStopping.set()
        thread.join()
    }

    private static func run(
        _ kafka: KafkaConfiguration, _ topic: String, _ sample: AckSample,
        _ isStopping: SharedFlag, _ log: Log
    ) {
        let faults = RateLimitedLog(log, limit: 1, interval: .minutes(1))
        let reader: TopicReader
        do throws(KafkaError) {
            reader = try TopicReader(kafka, topics: [topic], from: .end)
        } catch {
            return faults.warning(
                "acknowledgements are not counted", ["reason": LogValue(describing: error)])
        }
        reader.onFault = { _, error in
            faults.warning(
                "acknowledgements cannot be read", ["reason": LogValue(describing: error)])
        }
        let parser = JSONParser()
        while !isStopping.isSet {
            reader.read(max: 1_000, timeout: turn) { record in
                guard let value = record.value, let ack = AckSample.read(value, parser) else {
                    return
                }
                sample.acknowledged(ack.id, ack.kind)
            }
        }
    }
}
