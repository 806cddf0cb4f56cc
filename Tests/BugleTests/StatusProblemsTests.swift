// What `bugle status` calls wrong: the same as the alert rules, each with the page of the same name.

import Base
import Glibc
import JSON
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
            rule: "(bugle_breakers_open) > 0", bound: 0, labels: place),
        Case(
            page: "BugleCredentialRefused", metric: "bugle_credential_refused",
            rule: "(bugle_credential_refused) > 0", bound: 0, labels: place),
        Case(
            page: "BugleCredentialRefused", metric: "bugle_bulkhead_refused",
            rule: "(bugle_bulkhead_refused) > 0", bound: 0, labels: place),
        Case(
            page: "BugleCredentialPending", metric: "bugle_credentials_pending",
            rule: "max(bugle_credentials_pending) > 0", bound: 0),
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
            page: "BugleCertificateEnds", metric: "bugle_certificate_seconds_left",
            rule: "(bugle_certificate_seconds_left) < 14 * 86400", bound: 14 * 86_400,
            labels: [("setting", "redis.tls.ca_file")], isFloor: true),
        Case(
            page: "BugleControlUnread", metric: "bugle_fleet_heartbeat_age_seconds",
            rule: "bugle_fleet_heartbeat_age_seconds > 30", bound: 30),
        Case(
            page: "BugleMemoryHigh", metric: "process_resident_memory_bytes",
            rule: #"process_resident_memory_bytes{job="bugle"} > 1.5e9"#, bound: 1.5e9),
    ]

    /// A file of `deploy/`; empty when there is none.
    private func deployed(_ path: String) -> String {
        let folder = #filePath.split(separator: "/").dropLast(3).joined(separator: "/")
        guard let file = fopen("/\(folder)/deploy/\(path)", "r") else { return "" }
        defer { fclose(file) }
        var bytes = [UInt8](repeating: 0, count: 1 << 20)
        let count = fread(&bytes, 1, bytes.count, file)
        return String(decoding: bytes.prefix(count), as: UTF8.self)
    }

    private func pages(_ check: Case, at value: Double) -> [String] {
        let registry = MetricsRegistry()
        registry.gauge(check.metric, help: "A test.", labels: check.labels) { value }
        return StatusProblems(registry: registry).find(hindrances: []).map(\.page)
    }

    @Test(arguments: cases)
    func `begins where its alert does, and has the alert's page`(check: Case) throws {
        let beyond = check.isFloor ? check.bound - 1 : check.bound + 1
        #expect(pages(check, at: beyond) == [check.page])
        #expect(pages(check, at: check.bound) == [])
        let rule = deployed("prometheus/rules.yaml")
        let start = try #require(rule.firstRange(of: "alert: \(check.page)\n")).upperBound
        #expect(rule[start...].prefix(400).contains(check.rule))
        #expect(deployed("runbooks/\(check.page).md").hasPrefix("# \(check.page)\n"))
    }

    @Test func `is told of a process that is not ready, and of one short of descriptors`() {
        let registry = MetricsRegistry()
        registry.gauge("process_open_fds", help: "A test.") { 81 }
        registry.gauge("process_max_fds", help: "A test.") { 100 }
        let found = StatusProblems(registry: registry).find(hindrances: ["Redis is away"])
        #expect(found.map(\.page) == ["BugleNotReady", "BugleDescriptorsShort"])
        #expect(found[0].text == "Redis is away")
        #expect(deployed("runbooks/BugleNotReady.md").hasPrefix("# BugleNotReady"))
        #expect(deployed("runbooks/BugleDescriptorsShort.md").hasPrefix("# Bugle"))
    }

    @Test func `is nothing while nothing is`() {
        #expect(StatusProblems(registry: MetricsRegistry()).find(hindrances: []).isEmpty)
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

    @Test func `is that nobody writes the index, as far as live replicas say`() throws {
        let now = UnixMillis(1_000_000)
        let idle = try replica("a", writes: false, at: 999_000)
        let writer = try replica("b", writes: true, at: 999_000)
        let dead = try replica("c", writes: true, at: 900_000)
        func pages(_ replicas: [ReplicaReport]) -> [String] {
            ReplicaReport.problems(ofFleet: replicas, at: now).map(\.page)
        }
        #expect(pages([idle, writer]) == [])
        #expect(pages([idle, dead]) == ["BugleIndexWithoutWriter"])
        // Nobody at all is told otherwise.
        #expect(pages([]) == [] && pages([dead]) == [])
    }
}
