// One run of the demo: registers the devices, publishes the events, watches the results come, and
// lets the ledger be checked.

internal import Base
internal import Config
internal import Glibc
internal import JSON
internal import Kafka
internal import Simulator
internal import Telemetry

/// What was measured in a run.
internal struct DemoMeasures {
    /// From the first event published to the last offset committed.
    var span = TimeSpan.zero
    /// Of the whole process in that span.
    var cpu = TimeSpan.zero
    /// Requests that the gateways received in that span.
    var pushes = 0
    /// From the reading of an event to the outcome of its targets.
    var latencies = LatencyHistogram()
    /// Whether everything was committed before patience ended.
    var isSettled = false

    var pushesPerSecond: Double { span > .zero ? Double(pushes) / span.seconds : 0 }

    var cpuMicrosPerPush: Double { pushes > 0 ? Double(cpu.nanos) / 1000 / Double(pushes) : 0 }
}

/// A run on an embedded world.
internal final class DemoRun {
    private let world: EmbeddedWorld
    private let producer: TopicProducer
    private let reader: TopicReader
    private let asker: Consumer
    private let topics: Configuration.Topics
    private(set) var measures = DemoMeasures()

    /// How long a run may show no progress.
    private static let patience = TimeSpan.seconds(30)

    init(_ world: EmbeddedWorld) throws(Failure) {
        self.world = world
        topics = world.configuration.kafka.topics
        do throws(KafkaError) {
            producer = try TopicProducer(world.kafka)
            reader = try TopicReader(
                world.kafka, topics: [topics.results, topics.deadLetters], from: .beginning)
            asker = try Consumer(
                world.kafka, group: GroupConfiguration(groupID: world.configuration.kafka.group))
        } catch {
            throw .failed("the demo has no client: \(error)")
        }
    }

    /// Publishes the devices; the index learns them from their topic.
    func register(_ devices: [DemoDevice], at time: UnixMillis) throws(Failure) {
        do throws(KafkaError) {
            for device in devices {
                try producer.send(
                    to: topics.devices, key: device.key,
                    value: device.record(registeredAt: time, world.simulator))
            }
            try producer.flush(timeout: .seconds(20))
        } catch {
            throw .failed("the devices cannot be registered: \(error)")
        }
    }

    /// Publishes the records and waits until their offsets are committed; false when a signal or
    /// the end of patience came first.
    func publish(_ records: [DemoRecord], wanted: Int) throws(Failure) -> Bool {
        let start = SystemTime.shared.monotonic
        let cpuStart = Self.cpu()
        let pushesBefore = world.simulator.journal.counters.pushes
        do throws(KafkaError) {
            for record in records {
                try producer.send(
                    to: topics.events[0].name, key: record.key, value: record.value,
                    headers: record.headers)
            }
            try producer.flush(timeout: .seconds(30))
        } catch {
            throw .failed("the events cannot be published: \(error)")
        }
        let isDone = try waitUntilCommitted(events: wanted, since: start)
        measures.span = SystemTime.shared.monotonic - start
        measures.cpu = Self.cpu() - cpuStart
        measures.pushes = world.simulator.journal.counters.pushes - pushesBefore
        measures.latencies = world.service?.latencies() ?? LatencyHistogram()
        measures.isSettled = isDone
        return isDone
    }

    private func waitUntilCommitted(
        events wanted: Int, since start: MonotonicTime
    ) throws(Failure) -> Bool {
        let ends = try ends()
        var outcomes = 0
        var changedAt = start
        var askedAt = start
        while true {
            let count = reader.read(max: 2_000, timeout: .milliseconds(50)) { _ in }
            outcomes += count
            let now = SystemTime.shared.monotonic
            if count > 0 { changedAt = now }
            guard ProcessSignals.wait(upTo: .zero) == nil, now - changedAt < Self.patience else {
                if Terminal.showsProgress { Terminal.endProgress() }
                return false
            }
            guard now - askedAt >= .milliseconds(100) else { continue }
            askedAt = now
            let committed = committed(ends)
            if Terminal.showsProgress {
                let total = ends.values.reduce(0, +)
                let done = committed.reduce(0, +)
                let rate = Double(outcomes) / max((now - start).seconds, 0.001)
                Terminal.progress(
                    "\(done * 100 / max(total, 1)) %  \(done) of \(total) records done, "
                        + "\(outcomes) outcomes, \(Int(rate)) per second")
            }
            if committed.count == ends.count, committed.reduce(0, +) == ends.values.reduce(0, +) {
                if Terminal.showsProgress { Terminal.endProgress() }
                return true
            }
        }
    }

    /// Where each partition of the events topic that has records ends.
    private func ends() throws(Failure) -> [TopicPartition: Int64] {
        var ends: [TopicPartition: Int64] = [:]
        do throws(KafkaError) {
            for partition in 0..<EmbeddedWorld.partitions {
                let place = TopicPartition(topics.events[0].name, partition)
                let end = try asker.watermarks(place, timeout: .seconds(10)).upperBound
                if end > 0 { ends[place] = end }
            }
        } catch {
            throw .failed("the embedded broker does not say where topics end: \(error)")
        }
        return ends
    }

    private func committed(_ ends: [TopicPartition: Int64]) -> [Int64] {
        let offsets = try? asker.committedOffsets(Array(ends.keys), timeout: .seconds(5))
        return (offsets ?? [:]).values.map { max($0, 0) }
    }

    /// The CPU time of this process so far.
    private static func cpu() -> TimeSpan {
        var usage = rusage()
        getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
        func span(_ time: timeval) -> TimeSpan {
            .seconds(Int64(time.tv_sec)) + .microseconds(Int64(time.tv_usec))
        }
        return span(usage.ru_utime) + span(usage.ru_stime)
    }
}
