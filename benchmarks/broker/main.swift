// The surroundings of the pipeline's benchmarks in one process: librdkafka's mock cluster with
// Bugle's topics, the publisher of events and registrations, and a reader that takes the times
// out of results. A broker in a process of its own keeps its CPU time apart from Bugle's.
//
// Prints one JSON line when it is ready, then obeys lines on standard input, answers each with one
// JSON line, and ends with its input:
//
//     devices          publish the registrations of all users
//     record T K JSON  publish one record in a topic, with a key
//     events N         publish N events at once
//     rate R S         publish R events a second for S seconds, while results are metered
//     saturate N S     keep N events ahead of the results for S seconds, while these are metered
//     flood R S N      as rate, of critical events, while N events of marketing lie ahead of their
//                      results
//     meter            start metering results, from the next one on; those of marketing are counted
//     report           tell what the meter saw, and start anew
//     unmeter          stop metering

import Base
import Glibc
import Kafka

func fail(_ text: String) -> Never {
    var line = "benchmark broker: \(text)\n"
    line.withUTF8 { _ = write(2, $0.baseAddress, $0.count) }
    exit(2)
}

func answer(_ text: String) {
    print(text)
    fflush(nil)
}

/// Seconds since a moment, with two digits.
func seconds(since start: MonotonicTime) -> Double {
    let span = SystemTime.shared.monotonic - start
    return Double(span.millis / 10) / 100
}

struct Options {
    var partitions: Int32 = 24
    var devicePartitions: Int32 = 24
    var users = 400
    /// Half of the users have devices of the sandbox.
    var hasSandbox = false
    /// Whether events bring only a payload, of which a route makes a notification.
    var isRouted = false
    /// Which gateway the devices are at.
    var gateway = "apns"
    /// Of web push: what endpoints begin with.
    var endpoint = ""
    /// Apps that the users are spread over: `shop`, or `shop0`, `shop1` and so on.
    var apps = 1

    init(_ arguments: ArraySlice<String>) {
        var rest = arguments
        while let option = rest.popFirst() {
            if option == "--sandbox" {
                hasSandbox = true
                continue
            }
            if option == "--routed" {
                isRouted = true
                continue
            }
            if option == "--gateway" || option == "--endpoint" {
                guard let text = rest.popFirst() else { fail("\(option) needs a value") }
                if option == "--gateway" { gateway = text } else { endpoint = text }
                continue
            }
            guard let value = rest.popFirst().flatMap({ Int($0) }), value > 0 else {
                fail("\(option) needs a number")
            }
            switch option {
            case "--partitions": partitions = Int32(value)
            case "--device-partitions": devicePartitions = Int32(value)
            case "--users": users = value
            case "--apps": apps = value
            default: fail("unknown option \(option)")
            }
        }
    }
}

final class Host {
    private let cluster: MockCluster
    private let publisher: Publisher
    private var meter: ResultMeter?

    init(_ options: Options) throws {
        cluster = try MockCluster()
        let outputs = [
            "push.results", "push.invalidations", "push.events-dlt", "push.receipts",
            "push.expo-tickets", "push.users",
        ]
        let retries = ["10s", "1m", "10m", "1h"].map { "push.events-retry-\($0)" }
        let parked = [
            "apns-production", "apns-sandbox", "fcm-none", "webpush-none", "expo-none", "held",
        ].map { "push.events-parked-\($0)" }
        for topic in ["push.events", Publisher.marketing] + outputs + retries + parked {
            try cluster.createTopic(topic, partitions: options.partitions)
        }
        for topic in ["push.control", "push.status"] {
            try cluster.createTopic(topic, partitions: 1)
        }
        try cluster.createTopic("push.devices", partitions: options.devicePartitions)
        publisher = try Publisher(
            cluster.bootstrapServers, users: options.users, hasSandbox: options.hasSandbox,
            isRouted: options.isRouted,
            devices: Devices(
                gateway: options.gateway, endpoint: options.endpoint, apps: options.apps))
    }

    func run() throws {
        answer("{\"bootstrap\": \"\(cluster.bootstrapServers)\"}")
        var input = LineInput()
        while let line = input.next(idle: { readResults(waitingUpTo: .zero) }) {
            if line.hasPrefix("record ") {
                try publishRecord(line.split(separator: " ", maxSplits: 3))
                continue
            }
            let words = line.split(separator: " ")
            let numbers = words.dropFirst().compactMap { Int($0) }
            switch (words.first, numbers.count) {
            case ("devices", 0): try publishDevices()
            case ("events", 1): try publishEvents(numbers[0])
            case ("rate", 2): try publish(numbers[0], aSecondFor: numbers[1])
            case ("flood", 3): try publish(numbers[0], aSecondFor: numbers[1], flood: numbers[2])
            case ("saturate", 2): try saturate(ahead: numbers[0], for: numbers[1])
            case ("meter", 0): try startMeter()
            case ("unmeter", 0):
                meter = nil
                answer("{\"metering\": false}")
            case ("report", 0): answer(meter?.report() ?? "{}")
            default: fail("unknown command \(line)")
            }
        }
    }

    private func publishRecord(_ words: [Substring]) throws {
        guard words.count == 4 else { fail("record needs a topic, a key and a value") }
        try publisher.publish(String(words[1]), key: String(words[2]), value: String(words[3]))
        answer("{\"records\": 1}")
    }

    private func publishDevices() throws {
        let count = try publisher.publishDevices()
        answer("{\"devices\": \(count)}")
    }

    private func publishEvents(_ count: Int) throws {
        let start = SystemTime.shared.monotonic
        for _ in 0..<count { try publisher.publishEvent() }
        try publisher.flush()
        answer("{\"events\": \(count), \"seconds\": \(seconds(since: start))}")
    }

    /// Paces by the clock: what a turn was late for is published in the next one. Beside it so many
    /// events of marketing lie ahead of their results.
    private func publish(_ rate: Int, aSecondFor duration: Int, flood ahead: Int = 0) throws {
        let start = SystemTime.shared.monotonic
        let total = rate * duration
        let before = meter?.others ?? 0
        var published = 0
        var flooded = 0
        while published < total {
            let passed = SystemTime.shared.monotonic - start
            let due = min(Int(passed.seconds * Double(rate)), total)
            while published < due {
                try publisher.publishEvent()
                published += 1
            }
            // An event has 2.5 results. Not all at once: what is due is due in time.
            let done = ((meter?.others ?? 0) - before) * 2 / 5
            let room = min(ahead - (flooded - done), 500)
            for _ in 0..<max(room, 0) { try publisher.publishEvent(to: Publisher.marketing) }
            flooded += max(room, 0)
            readResults(waitingUpTo: .milliseconds(1))
        }
        while flooded % 4 != 0 {
            try publisher.publishEvent(to: Publisher.marketing)
            flooded += 1
        }
        try publisher.flush()
        answer(
            "{\"events\": \(published), \"flooded\": \(flooded), "
                + "\"seconds\": \(seconds(since: start))}")
    }

    /// Tells how many results came a second.
    private func saturate(ahead: Int, for duration: Int) throws {
        guard let meter else { fail("saturate needs the meter") }
        let start = SystemTime.shared.monotonic
        let end = start + .seconds(Int64(duration))
        let before = meter.count
        var published = 0
        while SystemTime.shared.monotonic < end {
            // An event has 2.5 results.
            let done = (meter.count - before) * 2 / 5
            let room = ahead - (published - done)
            for _ in 0..<max(room, 0) { try publisher.publishEvent() }
            published += max(room, 0)
            readResults(waitingUpTo: .milliseconds(1))
        }
        let results = meter.count - before
        let span = seconds(since: start)
        // Users take turns: the next ones begin where these end, at a multiple of four.
        while published % 4 != 0 {
            try publisher.publishEvent()
            published += 1
        }
        try publisher.flush()
        answer(
            "{\"events\": \(published), \"results_per_second\": \(Int(Double(results) / span))}")
    }

    private func startMeter() throws {
        if meter == nil { meter = try ResultMeter(cluster.bootstrapServers) }
        meter?.reset()
        answer("{\"metering\": true}")
    }

    private func readResults(waitingUpTo limit: TimeSpan) {
        if let meter { meter.read(waitingUpTo: limit) } else { usleep(UInt32(limit.nanos / 1000)) }
    }
}

do {
    try Host(Options(CommandLine.arguments.dropFirst())).run()
} catch {
    fail("\(error)")
}
