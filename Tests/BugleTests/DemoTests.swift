import Base
import JSON
import Kafka
import Telemetry
import Testing

@testable import Bugle

@Suite struct DemoTests {
    @Test func `a seed repeats users, devices and events`() {
        var first = DemoScenario(seed: 5)
        var second = DemoScenario(seed: 5)
        #expect(first.devices.map(\.token) == second.devices.map(\.token))
        let events = first.records(events: 200, poison: 5).map(\.value)
        #expect(events == second.records(events: 200, poison: 5).map(\.value))
        var other = DemoScenario(seed: 6)
        #expect(events != other.records(events: 200, poison: 5).map(\.value))
    }

    @Test(arguments: [1, 10, 3000]) func `as many events and poison records come as are asked for`(
        count: Int
    ) {
        var scenario = DemoScenario(seed: 1)
        let records = scenario.records(events: count, poison: 12)
        #expect(records.count { $0.headers.contains { $0.name == "demo-poison" } } == 12)
        #expect(records.count == count + 12)
    }

    @Test func `the scenario has every kind of device and users without one`() {
        let scenario = DemoScenario(seed: 1)
        #expect(
            Set(scenario.devices.map { "\($0.condition)" })
                == Set(DemoDevice.Condition.allCases.map { "\($0)" }))
        #expect(Set(scenario.devices.map(\.gateway)) == [.apns, .fcm, .webpush, .expo])
        #expect(scenario.devices.contains { $0.environment == .sandbox })
        #expect(scenario.users.contains { scenario.devicesByUser[$0] == nil })
        #expect(scenario.devicesByUser.values.allSatisfy { (1...4).contains($0.count) })
        #expect(Set(scenario.devices.map(\.token)).count == scenario.devices.count)
    }

    @Test func `a result becomes a line without token, content or control characters`() {
        let value = Array(
            """
            {"event_id":"e\\u001b[1m","event_type":"chat","user_id":"ada","gateway":"apns",
             "environment":"production","install_id":"phone","outcome":"accepted","status":200,
             "token_hash":"0a1b2c3d","consumed_at":1735689600000,"settled_at":1735689600012}
            """.utf8)
        let line = value.withUnsafeBytes { TailLine().result($0) }
        #expect(line.hasPrefix("00:00:00.012  accepted"))
        #expect(line.contains("apns production"))
        #expect(line.contains("user ada  on phone  200  12 ms"))
        #expect(!line.contains("\u{1B}") && !line.contains("0a1b2c3d"))
    }

    @Test func `the summary in JSON has what a machine asks for`() throws {
        var report = LedgerReport()
        report.events = 3
        report.targets = 4
        report.outcomes = ["apns": ["accepted": 4]]
        report.missing = ["e: no outcome"]
        var measures = DemoMeasures()
        measures.span = .seconds(2)
        measures.cpu = .milliseconds(1)
        measures.pushes = 10
        measures.latencies.record(.milliseconds(5))
        let summary = DemoSummary(
            report: report, measures: measures, users: 2, devices: 2, lanes: 1, seed: 9,
            isSettled: true, isDrained: true)
        let parser = JSONParser()
        let root = try parser.parse(summary.json)
        #expect(root["events"]?.int64 == 3)
        #expect(root["targets"]?.int64 == 4)
        #expect(root["outcomes"]?["apns"]?["accepted"]?.int64 == 4)
        #expect(root["balanced"]?.bool == false)
        #expect(root["missing"]?.count == 1)
        #expect(root["pushes_per_second"]?.double == 5)
        #expect(root["cpu_us_per_push"]?.double == 100)
        #expect((root["p50_ms"]?.double ?? 0) > 4)
        #expect((root["p99_ms"]?.double ?? 0) > 4)
        #expect(summary.lines.contains { $0.contains("NOT balanced") })
    }

    @Test(arguments: [
        (0, true, true, ExitCode.ok), (1, true, true, .failed), (0, false, true, .failed),
        (0, true, false, .failed),
    ]) func `the exit code is good only if everything fits`(
        missing: Int, isSettled: Bool, isDrained: Bool, code: ExitCode
    ) {
        var report = LedgerReport()
        report.missing = Array(repeating: "e: no outcome", count: missing)
        let summary = DemoSummary(
            report: report, measures: DemoMeasures(), users: 1, devices: 1, lanes: 1, seed: 1,
            isSettled: isSettled, isDrained: isDrained)
        #expect(summary.exitCode == code)
    }
}
