// What `bugle status` calls wrong: the same as the alert rules, each with the page of the same name.

import Base
import Glibc
import JSON
import Pipeline
import Telemetry
import Testing

@testable import Bugle

@Suite struct `What is wrong with a replica` {
    /// A metric above its alert's bound.
    struct Case: CustomStringConvertible {
        let page: String
        let metric: String
        /// As the rule has it.
        let rule: String
        let bound: Double
        var labels: [(String, String)] = []
        /// Whether below is bad.
        var isFloor = false
        var description: String { page }
    }

    private static let place = [("app", "shop"), ("gateway", "apns"), ("environment", "sandbox")]

    static let cases = [
        Case(
            page: "BugleGatewayDown", metric: "bugle_breakers_open",
            rule: #"bugle_breakers_open{environment!="sandbox"}) > 0"#, bound: 0, labels: place),
        Case(
            page: "BugleCredentialRefused", metric: "bugle_credential_refused",
            rule: "(bugle_credential_refused) > 0", bound: 0, labels: place),
        Case(
            page: "BugleCredentialRefused", metric: "bugle_bulkhead_refused",
            rule: "(bugle_bulkhead_refused) > 0", bound: 0, labels: place),
        Case(
            page: "BugleCredentialPending", metric: "bugle_credentials_pending",
            rule: "by (app, gateway) (bugle_credentials_pending) > 0", bound: 0,
            labels: [("app", "shop"), ("gateway", "fcm")]),
        Case(
            page: "BugleClockWrong", metric: "bugle_clock_skew_seconds",
            rule: "(abs(bugle_clock_skew_seconds)) > 0", bound: 0, labels: [("gateway", "fcm")]),
        Case(
            page: "BugleFuseTripped", metric: "bugle_fuse_tripped",
            rule: "(bugle_fuse_tripped) > 0", bound: 0, labels: place),
        Case(
            page: "BugleEventsLate", metric: "bugle_consumer_lag_seconds",
            rule: "max(bugle_consumer_lag_seconds) > 120", bound: 120),
        Case(
            page: "BugleBacklogGrows", metric: "bugle_seconds_to_drain",
            rule: "(bugle_seconds_to_drain) > 300", bound: 300,
            labels: [("bottleneck", "quota")]),
        Case(
            page: "BuglePartitionHeldBack", metric: "bugle_partitions_held_back",
            rule: "sum(bugle_partitions_held_back) > 0", bound: 0),
        Case(
            page: "BugleCommitsStuck", metric: "bugle_commit_age_seconds",
            rule: "bugle_commit_age_seconds > 15", bound: 15),
        Case(
            page: "BugleIndexBehind", metric: "bugle_index_lag_seconds",
            rule: "max(bugle_index_lag_seconds) > 10", bound: 10),
        Case(
            page: "BugleRedisEvicts", metric: "bugle_redis_evicts",
            rule: "max(bugle_redis_evicts) > 0", bound: 0),
        Case(
            page: "BugleCertificateEnds", metric: "bugle_certificate_seconds_left",
            rule: "by (app, gateway, setting) (bugle_certificate_seconds_left) < 14 * 86400",
            bound: 14 * 86_400,
            labels: [("app", "none"), ("gateway", "none"), ("setting", "redis.tls.ca_file")],
            isFloor: true),
        Case(
            page: "BugleControlUnread", metric: "bugle_fleet_heartbeat_age_seconds",
            rule: "bugle_fleet_heartbeat_age_seconds > 30", bound: 30),
        Case(
            page: "BugleMemoryHigh", metric: "process_resident_memory_bytes",
            rule: "process_resident_memory_bytes > 8e8", bound: 8e8),
    ]

    private func pages(_ check: Case, at value: Double) -> [String] {
        let registry = MetricsRegistry()
        registry.gauge(check.metric, help: "A test.", labels: check.labels) { value }
        return StatusProblems(registry: registry, history: StatusHistory())
            .find(hindrances: [], at: MonotonicTime(nanos: 0)).map(\.page)
    }

    @Test(arguments: cases)
    func `begins where its alert does, and has the alert's page`(check: Case) throws {
        let beyond = check.isFloor ? check.bound - 1 : check.bound + 1
        #expect(pages(check, at: beyond) == [check.page])
        #expect(pages(check, at: check.bound) == [])
        #expect(try Deployed.rule(check.page).contains(check.rule))
        #expect(Deployed.file("runbooks/\(check.page).md").hasPrefix("# \(check.page)\n"))
    }

    @Test func `is told of a process that is not ready, and of one short of descriptors`() {
        let registry = MetricsRegistry()
        registry.gauge("process_open_fds", help: "A test.") { 81 }
        registry.gauge("process_max_fds", help: "A test.") { 100 }
        let found = StatusProblems(registry: registry, history: StatusHistory())
            .find(hindrances: ["Redis is away"], at: MonotonicTime(nanos: 0))
        #expect(found.map(\.page) == ["BugleNotReady", "BugleDescriptorsShort"])
        #expect(found[0].text == "Redis is away")
        #expect(Deployed.file("runbooks/BugleNotReady.md").hasPrefix("# BugleNotReady"))
        #expect(Deployed.file("runbooks/BugleDescriptorsShort.md").hasPrefix("# Bugle"))
    }

    @Test func `is nothing while nothing is`() {
        let problems = StatusProblems(registry: MetricsRegistry(), history: StatusHistory())
        #expect(problems.find(hindrances: [], at: MonotonicTime(nanos: 0)).isEmpty)
    }

    /// What is told in other tests of this file than those with a list of cases.
    private static let others: Set = [
        "BugleNotReady", "BugleDescriptorsShort", "BugleDown", "BugleIndexWithoutWriter",
        "BuglePaused", "BugleGatewayLimits", "BugleParkedStays", "BugleDeadLetters",
    ]

    @Test func `has a page for every alert, but for those that the index calls Prometheus's own`() {
        let told = Set(Self.cases.map(\.page)).union(Self.others).union(
            `What has gone wrong lately`.cases.map(\.page))
        let alerts = Set(
            Deployed.file("prometheus/rules.yaml").matches(of: /- alert: (\w+)/)
                .map { String($0.output.1) })
        let rows = Deployed.file("runbooks/README.md").matches(
            of: /\| \[(\w+)\]\(\w+\.md\) \| \w+ \| [^|]+ \| ([^|]+) \|/)
        #expect(Set(rows.map { String($0.output.1) }) == alerts && rows.count == alerts.count)
        let theirs = rows.filter { $0.output.2.hasPrefix("Prometheus only: ") }
        #expect(told == alerts.subtracting(theirs.map { String($0.output.1) }))
    }
}

/// The files of `deploy/`.
private enum Deployed {
    /// A file's text; empty when there is none.
    static func file(_ path: String) -> String {
        let folder = #filePath.split(separator: "/").dropLast(3).joined(separator: "/")
        guard let file = fopen("/\(folder)/deploy/\(path)", "r") else { return "" }
        defer { fclose(file) }
        var bytes = [UInt8](repeating: 0, count: 1 << 20)
        let count = fread(&bytes, 1, bytes.count, file)
        return String(decoding: bytes.prefix(count), as: UTF8.self)
    }

    /// The rule of an alert, on one line and without the job that all of them ask for.
    static func rule(_ alert: String) throws -> String {
        let rules = file("prometheus/rules.yaml")
        let start = try #require(rules.firstRange(of: "alert: \(alert)\n")).upperBound
        let end = rules[start...].firstRange(of: "labels:")?.lowerBound ?? rules.endIndex
        return rules[start..<end].split(whereSeparator: \.isWhitespace).joined(separator: " ")
            .replacing(#"{job="bugle"}"#, with: "").replacing(#"job="bugle","#, with: "")
    }
}

@Suite struct `What has gone wrong lately` {
    /// A counter that grows by more than its alert lets pass.
    struct Case: CustomStringConvertible {
        let page: String
        let metric: String
        var labels: [(String, String)] = []
        /// As the rule has it, of the window and the bound.
        let rule: [String]
        let window: TimeSpan
        /// The growth that is not yet too much.
        var bound: Int = 0
        /// Of the other pushes, what a share is reckoned with.
        var others: Int = 0
        var description: String { page }
    }

    private static let apns = [("app", "shop"), ("gateway", "apns"), ("environment", "sandbox")]
    private static let fcm = [("app", "shop"), ("gateway", "fcm"), ("environment", "none")]

    static let cases = [
        Case(
            page: "BuglePushesFail", metric: "bugle_outcomes_total",
            labels: apns + [("outcome", "failed")],
            rule: [#"outcome=~"failed|unknown|rejected"}[10m]"#, "> 0.05"], window: .minutes(10),
            bound: 50, others: 950),
        Case(
            page: "BugleTokensDie", metric: "bugle_outcomes_total",
            labels: apns + [("outcome", "token_invalid")],
            rule: ["bugle:invalid:ratio30m > 0.1"], window: .minutes(30), bound: 100, others: 900),
        Case(
            page: "BugleHighUnseen", metric: "bugle_fcm_high_without_display_total", labels: fcm,
            rule: ["bugle_fcm_high_without_display_total[1h]", "> 0.2"], window: .hours(1),
            bound: 200, others: 1_000),
        Case(
            page: "BugleConnectionsFail", metric: "bugle_connect_failures_total",
            labels: [("app", "shop"), ("gateway", "apns"), ("host", "api.push.apple.com")],
            rule: ["bugle_connect_failures_total[5m])) > 0.1"], window: .minutes(5), bound: 30),
        Case(
            page: "BugleCapsUncounted", metric: "bugle_caps_uncounted_total",
            rule: ["bugle_caps_uncounted_total[10m])) > 0"], window: .minutes(10)),
        Case(
            page: "BugleIndexRecordsSkipped", metric: "bugle_index_records_skipped_total",
            rule: ["bugle_index_records_skipped_total[1h])) > 0"], window: .hours(1)),
        Case(
            page: "BugleMisrouted", metric: "bugle_events_misrouted_total",
            labels: [("source", "billing")], rule: ["bugle_events_misrouted_total[15m])) > 0"],
            window: .minutes(15)),
    ]

    @Test(arguments: cases)
    func `is told beyond the alert's bound, for as long as its window`(check: Case) throws {
        let registry = MetricsRegistry()
        let bad = registry.counter(check.metric, help: "A test.", labels: check.labels)
        let place = check.metric.hasPrefix("bugle_fcm") ? Self.fcm : Self.apns
        let accepted = registry.counter(
            "bugle_outcomes_total", help: "A test.", labels: place + [("outcome", "accepted")])
        let problems = StatusProblems(registry: registry, history: StatusHistory())
        func pages(_ minute: Int64) -> [String] {
            problems.find(hindrances: [], at: MonotonicTime(nanos: 0) + .minutes(minute))
                .map(\.page)
        }
        #expect(pages(0) == [])
        accepted.add(check.others)
        bad.add(check.bound)
        #expect(pages(0) == [])
        bad.add(1)
        let minutes = check.window.millis / 60_000
        for minute in 0...minutes { #expect(pages(minute) == [check.page], "\(minute)") }
        #expect(pages(minutes + 1) == [])
        let rule = try Deployed.rule(check.page)
        for part in check.rule { #expect(rule.contains(part), "\(part)") }
    }

    @Test func `is no share of a few pushes, and none of another place's`() {
        let registry = MetricsRegistry()
        func counter(_ place: [(String, String)], _ outcome: String) -> Counter {
            registry.counter(
                "bugle_outcomes_total", help: "A test.", labels: place + [("outcome", outcome)])
        }
        let failed = counter(Self.apns, "failed")
        counter(Self.fcm, "accepted").add(10_000)
        failed.add(99)
        let problems = StatusProblems(registry: registry, history: StatusHistory())
        #expect(problems.find(hindrances: [], at: MonotonicTime(nanos: 0)) == [])
        failed.add(1)
        let found = problems.find(hindrances: [], at: MonotonicTime(nanos: 0))
        let text = "apns of shop: 100 % of the pushes of the last 10 min failed"
        #expect(found.map(\.text) == [text])
    }
}

@Suite struct `What has lasted` {
    private let registry = MetricsRegistry()
    private let history = StatusHistory()
    private static let place = [("app", "shop"), ("gateway", "apns"), ("environment", "sandbox")]
    private static let lot = [("gateway", "apns"), ("environment", "sandbox")]

    private func problems(_ minute: Int64) -> [ReplicaReport.Problem] {
        StatusProblems(registry: registry, history: history)
            .find(hindrances: [], at: MonotonicTime(nanos: 0) + .minutes(minute))
    }

    @Test func `is a gateway's limit that is reached without a break`() throws {
        let waiting = registry.gauge("bugle_bulkhead_waiting", help: "A test.", labels: Self.place)
        waiting.set(3)
        for minute in 0...8 { #expect(problems(Int64(minute)) == []) }
        waiting.set(0)
        #expect(problems(9) == [])
        waiting.set(3)
        for minute in 10...19 { #expect(problems(Int64(minute)) == []) }
        let found = problems(20)
        #expect(found.map(\.page) == ["BugleGatewayLimits"])
        #expect(
            found.map(\.text) == ["apns sandbox of shop takes no more than it gets, for 10 min"])
        #expect(try Deployed.rule("BugleGatewayLimits").contains("for: 10m"))
    }

    @Test func `is what stays parked while no breaker is open`() throws {
        let parked = registry.gauge(
            "bugle_parked_backlog_records", help: "A test.", labels: Self.lot)
        let breaker = registry.gauge("bugle_breakers_open", help: "A test.", labels: Self.place)
        parked.set(7)
        breaker.set(1)
        for minute in 0...40 {
            #expect(problems(Int64(minute)).map(\.page) == ["BugleGatewayDown"])
        }
        breaker.set(0)
        for minute in 41...70 { #expect(problems(Int64(minute)) == []) }
        #expect(problems(71).map(\.page) == ["BugleParkedStays"])
        // An operator's pause parks without an outage, and is told by itself.
        let paused = registry.gauge(
            "bugle_paused_levers", help: "A test.", labels: [("lever", "gateway")])
        paused.set(1)
        for minute in 72...110 { #expect(problems(Int64(minute)) == []) }
        paused.set(0)
        for minute in 111...140 { #expect(problems(Int64(minute)) == []) }
        #expect(problems(141).map(\.page) == ["BugleParkedStays"])
        parked.set(0)
        #expect(problems(142) == [])
        #expect(try Deployed.rule("BugleParkedStays").contains("for: 30m"))
    }

    @Test func `are dead letters that do not end, and not a single one`() throws {
        let letters = registry.counter(
            "bugle_dead_letters_total", help: "A test.", labels: [("code", "no_route")])
        #expect(problems(0) == [])
        letters.add(1)
        for minute in 0...30 { #expect(problems(Int64(minute)) == []) }
        for minute in 31...42 {
            letters.add(1)
            #expect(problems(Int64(minute)) == [])
        }
        let found = problems(43)
        #expect(found.map(\.page) == ["BugleDeadLetters"])
        #expect(found.map(\.text) == ["events become dead letters: no_route, for 12 min"])
        #expect(try Deployed.rule("BugleDeadLetters").contains("[10m])) > 0 for: 10m"))
    }
}

@Suite struct `What is wrong with a fleet` {
    private func replica(_ name: String, writes: Bool, at: Int64) throws -> ReplicaReport {
        let text = Array(#"{"instance":"\#(name)","ready":true,"index_writer":\#(writes)}"#.utf8)
        let report = text.withUnsafeBytes {
            ReplicaReport($0, at: UnixMillis(at), parser: JSONParser())
        }
        return try #require(report)
    }

    @Test func `is what was paused for an hour and may be forgotten`() throws {
        let lever = try #require(Lever(.type, "news"))
        let record = ControlRecord(.pause(lever), at: UnixMillis(0))
        let (key, value) = (Array(record.key.utf8), ByteWriter())
        record.write(to: value)
        var book = ControlBook()
        key.withUnsafeBytes {
            book.apply(key: $0, value: value.bytes, at: record.at, parser: JSONParser())
        }
        func problems(_ minutes: Int64) -> [ReplicaReport.Problem] {
            ReplicaReport.problems(ofFleet: [], book, at: record.at + .minutes(minutes))
        }
        #expect(problems(60) == [])
        #expect(
            problems(61) == [
                ReplicaReport.Problem(page: "BuglePaused", text: "type news is paused, for 61 min")
            ])
        #expect(try Deployed.rule("BuglePaused").contains("for: 1h"))
    }

    @Test func `is that nobody writes the index, as far as live replicas say`() throws {
        let now = UnixMillis(1_000_000)
        let idle = try replica("a", writes: false, at: 999_000)
        let writer = try replica("b", writes: true, at: 999_000)
        let dead = try replica("c", writes: true, at: 900_000)
        func pages(_ replicas: [ReplicaReport]) -> [String] {
            ReplicaReport.problems(ofFleet: replicas, ControlBook(), at: now).map(\.page)
        }
        #expect(pages([idle, writer]) == [])
        #expect(pages([idle, dead]) == ["BugleIndexWithoutWriter"])
        // Nobody at all is told otherwise.
        #expect(pages([]) == [] && pages([dead]) == [])
        #expect(dead.problems(at: now).map(\.page) == ["BugleDown"])
    }
}
