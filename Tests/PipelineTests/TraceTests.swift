import Base
import Telemetry
import Testing

@testable import Pipeline

@Suite struct `A trace's header` {
    private func read(_ text: String) -> TraceContext? {
        Array(text.utf8).withUnsafeBytes {
            TraceContext(traceparent: $0, span: 7, records: true)
        }
    }

    private static let trace = "4bf92f3577b34da6a3ce929d0e0e4736"

    @Test func `is carried on with our span in it`() throws {
        let context = try #require(read("00-\(Self.trace)-00f067aa0ba902b7-01"))
        #expect(context.isRecorded && context.parent == 0x00F0_67AA_0BA9_02B7)
        let bytes = ByteWriter()
        context.write(to: bytes)
        #expect(bytes.text == "00-\(Self.trace)-0000000000000007-01")
    }

    @Test func `of a later version is read as far as it is known`() {
        #expect(read("01-\(Self.trace)-00f067aa0ba902b7-01-more") != nil)
        #expect(read("01-\(Self.trace)-00f067aa0ba902b7-01more") == nil)
    }

    @Test(arguments: [
        "", "00-4bf9", "ff-\(trace)-00f067aa0ba902b7-01", "00-\(trace)-0000000000000000-01",
        "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        "00-\(trace)-00f067aa0ba902b7-01-", "00-\(trace)-00F067AA0BA902B7-01",
        "00-\(trace)-00f067aa0ba902b7-0x", "00_\(trace)-00f067aa0ba902b7-01",
    ])
    func `that breaks the rules counts as none`(text: String) {
        #expect(read(text) == nil)
    }

    @Test func `says whether the caller records`() throws {
        #expect(read("00-\(Self.trace)-00f067aa0ba902b7-00")?.isRecorded == false)
        #expect(read("00-\(Self.trace)-00f067aa0ba902b7-03")?.isRecorded == true)
    }
}

@Suite struct `The queue of traced events` {
    @Test func `drops and counts what it has no room for`() throws {
        let queue = TraceQueue(sample: 0, capacity: 2)
        let event = TracedEvent(
            context: TraceContext(root: 1, 2, span: 3), topic: "t", partition: 0, offset: 0,
            eventID: "e", eventType: "t", app: "a", consumedAt: UnixMillis(0), askedAt: nil,
            fannedOutAt: nil, endedAt: UnixMillis(0), outcome: nil, targets: [])
        for _ in 0..<5 { queue.offer(event) }
        #expect(queue.dropped == 3 && queue.take().count == 2)
        queue.offer(event)
        #expect(queue.take().count == 1)
    }
}

@Suite struct `The sample of acknowledged pushes` {
    private func id(_ number: UInt64) -> UUIDBytes {
        UUIDBytes(high: 1, low: number * AckSample.oneIn)
    }

    private func sum(_ registry: MetricsRegistry, _ name: String, _ type: String? = nil) -> Double {
        registry.readings(of: name).filter {
            $0.label("gateway") == "apns" && (type == nil || $0.label("type") == type)
        }.reduce(0) { $0 + $1.value }
    }

    @Test func `counts each kind of a push once, and strangers not at all`() {
        let registry = MetricsRegistry()
        let sample = AckSample(registry)
        sample.accepted(id(1), by: .apns, at: UnixMillis(0))
        sample.accepted(id(1), by: .apns, at: UnixMillis(1))
        for _ in 0..<3 { sample.acknowledged(id(1), .delivered) }
        sample.acknowledged(id(1), .opened)
        sample.acknowledged(id(2), .delivered)
        sample.acknowledged(UUIDBytes(high: 1, low: AckSample.oneIn + 1), .delivered)
        #expect(sum(registry, "bugle_ack_sampled_pushes_total") == 1)
        let name = "bugle_ack_sampled_acknowledged_total"
        #expect(sum(registry, name, "delivered") == 1 && sum(registry, name, "opened") == 1)
    }

    @Test func `forgets the oldest beyond its bound`() {
        let sample = AckSample(MetricsRegistry())
        let count = UInt64(AckSample.pushesMax) * 2 + 10
        for number in 0..<count { sample.accepted(id(number), by: .fcm, at: UnixMillis(0)) }
        #expect(sample.count == AckSample.pushesMax)
    }
}

@Suite struct `Misrouted records` {
    @Test func `have a series for some sources and one for all others`() {
        let registry = MetricsRegistry()
        let counters = MisroutedCounters(registry)
        for number in 0..<100 { counters.counter(of: "service-\(number)").add(1) }
        counters.counter(of: "ada@example.com").add(1)
        counters.counter(of: "").add(1)
        let readings = registry.readings(of: "bugle_events_misrouted_total")
        #expect(readings.count == MisroutedCounters.sourcesMax + 1)
        #expect(readings.reduce(0) { $0 + $1.value } == 102)
        #expect(!readings.contains { $0.label("source").contains("@") })
    }
}
