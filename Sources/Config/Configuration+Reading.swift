// The shape of the file: one function per section, keys in the order of the documentation.

internal import Base
internal import Telemetry

extension Configuration {
    /// Reads a whole file; faults are left with the reader.
    internal init(_ section: ConfigurationSection, text: String, hostName: String) {
        var top = section
        kafka = Kafka(top.section("kafka"), hostName: hostName)
        redis = Redis(top.section("redis"))
        egress = Egress(top.section("egress"))
        apps = App.readAll(&top)
        index = Index(top.section("index"), apps: apps)
        if kafka.isInstanceLeased, index.store == .memory {
            top.section("kafka").report(
                "instance", "auto leases a name in Redis, and index.store is memory; name it")
        }
        lanes = top.value("lanes", default: .auto, "auto or a whole number from 1 to 64") { text in
            if text == "auto" { return .auto }
            return Int(text).flatMap { (1...64).contains($0) ? .count($0) : nil }
        }
        roles = Role.readAll(&top)
        admin = Self.readAdmin(top.section("admin"))
        drainDeadline = top.span(
            "drain_deadline", default: .seconds(20), in: .zero ... .minutes(10))
        dispatch = Dispatch(top.section("dispatch"))
        limits = Limits(top.section("limits"))
        log = Logging(top.section("log"))
        tracing = Tracing.read(&top)
        cloudEvents = CloudEvents(top.section("cloudevents"))
        routing = Self.readRouting(&top)
        sourceText = text
        top.finish()
    }

    private static func readAdmin(_ section: ConfigurationSection) -> HostPort {
        var section = section
        let fallback = HostPort(host: "127.0.0.1", port: 9464)
        let listen = section.value("listen", default: fallback, "host:port") { HostPort($0) }
        section.finish()
        return listen
    }
}

extension Configuration.Role {
    fileprivate static func readAll(_ top: inout ConfigurationSection) -> Set<Self> {
        let expected = "dispatch, index, or both as [dispatch, index]"
        let roles = Set(
            top.texts("roles", default: allCases.map { $0 }, expected) { Self(rawValue: $0) })
        if roles.isEmpty, top.isEmptyList("roles") { top.report("roles", "expected \(expected)") }
        return roles
    }
}

extension Configuration.Index {
    fileprivate init(_ section: ConfigurationSection, apps: [Configuration.App]) {
        var section = section
        store = section.choice("store", default: .redis)
        fuse = Fuse(section.section("fuse"))
        staleness = Staleness(section.section("staleness"))
        sweep = Sweep(section.section("sweep"))
        lagMax = section.span("lag_max", default: .minutes(2), in: .seconds(10) ... .hours(1))
        gatewayPreference = Gateway.readPreference(&section)
        tables = Self.readTables(section.section("debezium"), apps: apps)
        section.finish()
    }
}

extension Configuration.Dispatch {
    fileprivate init(_ section: ConfigurationSection) {
        var section = section
        maxInFlightEvents = section.integer(
            "max_in_flight_events", default: 2_000, in: 1...1_000_000)
        inFlightPerBulkhead = section.integer(
            "in_flight_per_bulkhead", default: 2_000, in: 1...100_000)
        var connections = section.section("connections")
        apnsConnections = Connections(connections.section("apns"), min: 2, max: 10)
        fcmConnections = Connections(connections.section("fcm"), min: 2, max: 4)
        connections.finish()
        retry = Retry(section.section("retry"))
        receiptWait = section.span(
            "receipt_wait", default: .minutes(15), in: .seconds(1) ... .hours(6))
        deduplicate = section.value(
            "deduplicate", default: .zero, "0, or a time from 1s to 7d with its unit"
        ) { text in
            if text == "0" { return .zero }
            return SpanText.read(text).flatMap {
                (.seconds(1) ... .hours(7 * 24)).contains($0) ? $0 : nil
            }
        }
        section.finish()
    }
}

extension Configuration.Dispatch.Connections {
    fileprivate init(_ section: ConfigurationSection, min: Int, max: Int) {
        var section = section
        self.max = section.integer("max", default: max, in: 1...100)
        self.min = section.integer("min", default: Swift.min(min, self.max), in: 1...100)
        if self.min > self.max { section.report("min", "larger than max") }
        section.finish()
    }
}

extension Configuration.Dispatch.Retry {
    fileprivate init(_ section: ConfigurationSection) {
        var section = section
        attempts = section.integer("attempts", default: 3, in: 1...10)
        base = section.span(
            "base", default: .milliseconds(200), in: .milliseconds(1) ... .seconds(60))
        maxWait = section.span(
            "max_wait", default: max(.seconds(5), base), in: .milliseconds(1) ... .minutes(1))
        if maxWait < base { section.report("max_wait", "shorter than base") }
        section.finish()
    }
}

extension Configuration.Limits {
    fileprivate init(_ section: ConfigurationSection) {
        var section = section
        eventBytes = section.integer("event_bytes", default: 262_144, in: 1_024...524_288)
        addressesPerUser = section.integer("addresses_per_user", default: 1_000, in: 1...5_000)
        section.finish()
    }
}

extension Configuration.Logging {
    fileprivate init(_ section: ConfigurationSection) {
        var section = section
        level = section.choice("level", default: .info)
        format = section.value("format", default: nil, "one of auto, json, pretty") { text in
            text == "auto" ? .some(nil) : LogFormat(rawValue: text).map { .some($0) }
        }
        section.finish()
    }
}

extension Configuration.CloudEvents {
    fileprivate init(_ section: ConfigurationSection) {
        var section = section
        userFromSubject = section.bool("user_from_subject", default: false)
        section.finish()
    }
}
