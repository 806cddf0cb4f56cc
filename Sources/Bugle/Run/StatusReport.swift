// What `/status.json` tells: the process at a glance, out of its metrics, for the page at `/` and
// for scripts. Numbers only grow or are of this moment; whoever wants a rate asks twice.

internal import Base
internal import JSON
internal import Telemetry

/// Writes the status of a process. Safe on any thread.
internal struct StatusReport: Sendable {
    let instance: String
    let group: String
    let registry: MetricsRegistry
    let troubles: RecentTroubles
    let hindrances: @Sendable () -> [String]
    private let history = StatusHistory()
    /// The fleet, once the process has joined it.
    var fleet: @Sendable () -> Fleet? = { nil }

    /// Writes the answer to `/status.json`.
    func write(to bytes: ByteWriter) {
        var object = JSONObjectWriter(bytes)
        writeStanding(&object, ofFleet: fleetProblems)
        object.name("levers")
        writeLevers(to: bytes)
        writeFlow(&object)
        writeOutcomes(&object)
        writeGateways(&object)
        writeBacklogs(&object)
        writeCredentials(&object)
        writeTroubles(&object)
        object.name("fleet")
        writeFleet(to: bytes)
        object.end()
        bytes.append(0x0A)
    }

    /// Writes this replica's record of the status topic: what the others show of it.
    func writeRecord(to bytes: ByteWriter, _ pace: PaceMeter) {
        var object = JSONObjectWriter(bytes)
        writeStanding(&object)
        pace.write(registry, to: &object)
        writeFlow(&object)
        writeOutcomes(&object)
        writeBacklogs(&object)
        object.end()
    }

    /// Who it is and how it is; the page tells too what is wrong with the fleet, which no replica
    /// reports of itself.
    private func writeStanding(
        _ object: inout JSONObjectWriter, ofFleet: [ReplicaReport.Problem] = []
    ) {
        let reasons = hindrances()
        object.integer("v", 1)
        object.string("version", Program.version)
        object.string("instance", instance)
        object.string("group", group)
        object.integer("now", SystemTime.shared.wall.value)
        object.integer("started_at", millis("process_start_time_seconds"))
        object.bool("ready", reasons.isEmpty)
        object.name("reasons")
        array(reasons, to: object.bytes) { object.bytes.append(jsonString: $0) }
        object.name("problems")
        ReplicaReport.Problem.write(
            StatusProblems(registry: registry, history: history)
                .find(hindrances: reasons, at: SystemTime.shared.monotonic) + ofFleet,
            to: object.bytes)
        object.integer("control_offset", fleet()?.view.controlOffset ?? -1)
    }

    private func writeFlow(_ object: inout JSONObjectWriter) {
        object.integer("partitions", count("bugle_events_partitions"))
        object.integer("events_total", count("bugle_events_consumed_total"))
        object.integer("events_in_flight", count("bugle_events_in_flight"))
        object.integer("lag_records", count("bugle_consumer_lag_records"))
        object.integer("lag_ms", millis("bugle_consumer_lag_seconds"))
        object.integer("commit_age_ms", millis("bugle_commit_age_seconds"))
        object.integer("dead_letters", count("bugle_dead_letters_total"))
        let drain = registry.readings(of: "bugle_seconds_to_drain").max { $0.value < $1.value }
        object.integer("drain_ms", Int64((drain?.value ?? 0) * 1000))
        let isBehind = (drain?.value ?? 0) > 0
        object.string("bottleneck", isBehind ? drain?.label("bottleneck") ?? "none" : "none")
        object.integer("lanes_busy_ms", millis("bugle_lane_busy_seconds_total"))
        object.integer("lanes_idle_ms", millis("bugle_lane_idle_seconds_total"))
        object.bool("index_writer", count("bugle_index_writer") > 0)
        object.integer("index_lag_ms", millis("bugle_index_lag_seconds"))
        object.integer("memory_bytes", count("process_resident_memory_bytes"))
    }

    /// All targets and events by their outcome.
    private func writeOutcomes(_ object: inout JSONObjectWriter) {
        var sums: [String: Double] = [:]
        for name in ["bugle_outcomes_total", "bugle_event_outcomes_total"] {
            for reading in registry.readings(of: name) {
                sums[reading.label("outcome"), default: 0] += reading.value
            }
        }
        object.name("outcomes")
        write(sums, to: object.bytes)
    }

    private func writeGateways(_ object: inout JSONObjectWriter) {
        object.name("latency_bounds_ms")
        array(Histogram.latencyBuckets, to: object.bytes) {
            object.bytes.append(($0 * 1000).description)
        }
        object.name("gateways")
        let outcomes = registry.readings(of: "bugle_outcomes_total")
        let latencies = registry.readings(of: "bugle_gateway_seconds")
        let breakers = registry.readings(of: "bugle_breakers_open")
        let refused = refusals
        array(breakers, to: object.bytes) { breaker in
            let place = Self.place(of: breaker)
            func number(_ name: String) -> Int64 {
                let readings = registry.readings(of: name).filter { Self.place(of: $0) == place }
                return Int64(readings.first?.value ?? 0)
            }
            var gateway = JSONObjectWriter(object.bytes)
            gateway.string("app", place[0])
            gateway.string("gateway", place[1])
            gateway.string("environment", place[2])
            gateway.integer("breakers_open", Int64(breaker.value))
            gateway.bool("refused", refused.contains { place.starts(with: $0) })
            gateway.integer("in_flight", number("bugle_bulkhead_in_flight"))
            gateway.integer("limit", number("bugle_bulkhead_limit"))
            gateway.integer("waiting", number("bugle_bulkhead_waiting"))
            gateway.name("outcomes")
            var sums: [String: Double] = [:]
            for reading in outcomes where Self.place(of: reading) == place {
                sums[reading.label("outcome")] = reading.value
            }
            write(sums, to: object.bytes)
            gateway.name("latency")
            let latency = latencies.first { Self.place(of: $0) == place }
            array(latency?.buckets ?? [], to: object.bytes) { object.bytes.append(decimal: $0) }
            gateway.end()
        }
    }

    private func writeBacklogs(_ object: inout JSONObjectWriter) {
        let retry = registry.readings(of: "bugle_retry_backlog_records").map {
            ("retry-\($0.label("tier"))", $0.value)
        }
        let parked = registry.readings(of: "bugle_parked_backlog_records").map {
            ("parked-\($0.label("gateway"))-\($0.label("environment"))", $0.value)
        }
        let held = [("held", registry.sum(of: "bugle_held_backlog_records"))]
        object.name("backlogs")
        write(Dictionary(retry + parked + held, uniquingKeysWith: +), to: object.bytes)
    }

    /// The places whose credential a gateway refuses: app, gateway and, where one environment does
    /// so alone, that.
    private var refusals: [[String]] {
        ["bugle_credential_refused", "bugle_bulkhead_refused"]
            .flatMap { registry.readings(of: $0) }.filter { $0.value > 0 }
            .map { Self.place(of: $0).filter { !$0.isEmpty } }
    }

    private func writeCredentials(_ object: inout JSONObjectWriter) {
        let refused = Set(refusals.map { $0.prefix(2) })
        object.name("credentials")
        let ages = registry.readings(of: "bugle_credential_token_age_seconds")
        array(ages, to: object.bytes) { age in
            let place = Self.place(of: age)
            var credential = JSONObjectWriter(object.bytes)
            credential.string("app", place[0])
            credential.string("gateway", place[1])
            credential.integer("token_age_ms", Int64(age.value * 1000))
            credential.bool("refused", refused.contains(place.prefix(2)))
            credential.end()
        }
        object.name("certificates")
        let certificates = registry.readings(of: "bugle_certificate_seconds_left")
        array(certificates, to: object.bytes) { reading in
            var certificate = JSONObjectWriter(object.bytes)
            certificate.string("setting", reading.label("setting"))
            let isReadable = reading.value != 0
            let days = Int64((reading.value / 86_400).rounded(.down))
            certificate.integer("days_left", orNull: isReadable ? days : nil)
            certificate.end()
        }
    }

    private func writeTroubles(_ object: inout JSONObjectWriter) {
        object.name("troubles")
        array(troubles.lines, to: object.bytes) { line in
            var trouble = JSONObjectWriter(object.bytes)
            trouble.integer("at", line.at)
            trouble.string("level", line.level.rawValue)
            trouble.string("component", line.component)
            trouble.string("message", line.message)
            trouble.string(
                "fields", line.fields.map { "\($0.name)=\($0.value)" }.joined(separator: " "))
            trouble.integer("suppressed", Int64(line.suppressed))
            trouble.end()
        }
    }

    // MARK: - Parts

    private static func place(of reading: MetricReading) -> [String] {
        ["app", "gateway", "environment"].map(reading.label)
    }

    private func count(_ name: String) -> Int64 { Int64(registry.sum(of: name)) }

    private func millis(_ name: String) -> Int64 { Int64(registry.sum(of: name) * 1000) }

    /// An object of whole numbers, sorted by name.
    private func write(_ sums: [String: Double], to bytes: ByteWriter) {
        bytes.append(0x7B)
        for (index, name) in sums.keys.sorted().enumerated() {
            if index > 0 { bytes.append(0x2C) }
            bytes.append(jsonString: name)
            bytes.append(0x3A)
            bytes.append(decimal: Int64(sums[name] ?? 0))
        }
        bytes.append(0x7D)
    }

    func array<Element>(
        _ elements: [Element], to bytes: ByteWriter, _ write: (Element) -> Void
    ) {
        bytes.append(0x5B)
        for (index, element) in elements.enumerated() {
            if index > 0 { bytes.append(0x2C) }
            write(element)
        }
        bytes.append(0x5D)
    }
}
