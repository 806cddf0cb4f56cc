// A wrong clock of this machine, as it is noticed and as whoever is called reads it.

import Base
import Gateways
import Simulator
import Telemetry
import Testing

@testable import Pipeline

@Suite struct `The watch over this machine's clock` {
    private let sink = CollectingSink()
    private let registry = MetricsRegistry()

    private func watch() -> ClockWatch {
        ClockWatch(Log(level: .debug, format: .json, sink: sink), registry)
    }

    private func skew(_ gateway: Gateway) -> Double {
        registry.readings(of: "bugle_clock_skew_seconds")
            .first { $0.label("gateway") == gateway.rawValue }?.value ?? -1
    }

    @Test func `names a difference once, with its size and the gateway, and its end`() {
        let watch = watch()
        watch.note(.seconds(90), of: .fcm, after: .milliseconds(40))
        watch.note(.seconds(91), of: .fcm, after: .milliseconds(40))
        #expect(sink.lines.count == 1)
        let line = sink.lines.first ?? ""
        for word in [
            "this machine's clock is wrong", "run a time service", #""gateway":"fcm""#,
            #""behind_ms":90000"#,
        ] {
            #expect(line.contains(word), "\(line)")
        }
        #expect(skew(.fcm) == 91)
        #expect(skew(.expo) == 0)
        watch.note(.seconds(2), of: .fcm, after: .milliseconds(40))
        #expect(sink.lines.count == 2)
        #expect(sink.lines.last?.contains("right again") == true)
        #expect(skew(.fcm) == 0)
    }

    @Test func `a clock that runs ahead is as wrong as one behind`() {
        watch().note(.seconds(-3600), of: .webpush, after: .zero)
        #expect(sink.lines.first?.contains(#""behind_ms":-3600000"#) == true)
        #expect(skew(.webpush) == -3600)
    }

    @Test func `whole seconds and a long way are no difference`() {
        let watch = watch()
        watch.note(.seconds(5), of: .fcm, after: .zero)
        watch.note(.seconds(-5), of: .expo, after: .zero)
        watch.note(.seconds(-12), of: .webpush, after: .seconds(8))
        #expect(sink.lines.isEmpty)
        watch.note(.seconds(-14), of: .webpush, after: .seconds(8))
        #expect(sink.lines.count == 1)
    }

    @Test func `gateways apart are told apart, and APNs, which tells no time, has no gauge`() {
        let watch = watch()
        watch.note(.seconds(60), of: .fcm, after: .zero)
        watch.note(.seconds(60), of: .expo, after: .zero)
        #expect(sink.lines.count == 2)
        let gateways = registry.readings(of: "bugle_clock_skew_seconds").map { $0.label("gateway") }
        #expect(Set(gateways) == ["fcm", "webpush", "expo"])
    }

    /// A clock that differs from the system's by as much as a test wants.
    private final class ShiftedTime: TimeSource {
        private let span: TimeSpan
        init(by span: TimeSpan) { self.span = span }
        var monotonic: MonotonicTime { SystemTime.shared.monotonic }
        var wall: UnixMillis { SystemTime.shared.wall + span }
    }

    @Test func `a lane reads it in the answers of every gateway that tells its time`() throws {
        var options = SimulatorOptions()
        // Far enough to be told, near enough for every token.
        options.time = ShiftedTime(by: .seconds(120))
        let simulator = try Simulator(options)
        let world = try World(simulator, lanes: 1)
        try world.register("f", user: "u1", gateway: .fcm)
        try world.registerExpo("e", user: "u1", token: "ExponentPushToken[u1]")
        try world.subscribe(
            "w", user: "u1", at: simulator.endpoint(of: "u1"), with: try World.browser("u1"))
        try world.start()
        try world.publish(id: "a", user: "u1")
        try world.flush()
        #expect(try world.records(of: "push.results", atLeast: 3).count == 3)
        let readings = world.registry.readings(of: "bugle_clock_skew_seconds")
        #expect(readings.count == 3)
        for reading in readings { #expect((110...130).contains(reading.value)) }
        #expect(world.lines(with: "this machine's clock is wrong") == 3)
    }

    @Test func `a trial of a credential tells the difference`() throws {
        var options = SimulatorOptions()
        options.time = ShiftedTime(by: .seconds(-200))
        let simulator = try Simulator(options)
        let world = try World(simulator)
        let prover = try CredentialProver()
        defer { prover.stop() }
        for gateway in [Gateway.fcm, .expo] {
            let ahead = prover.prove(world.apps[0], gateway).compactMap(\.clockAhead)
            #expect(ahead.contains { (-215 ... -190).contains($0.seconds) }, "\(gateway)")
        }
        // An hour and more: the token endpoint refuses, and the clock is blamed, not the key.
        var far = SimulatorOptions()
        far.time = ShiftedTime(by: .hours(3))
        let other = try Simulator(far)
        let late = try World(other)
        defer { withExtendedLifetime(late) {} }
        let trials = prover.prove(late.apps[0], .fcm)
        guard case .refused(let fault, let text)? = trials.first?.verdict else {
            Issue.record("\(trials)")
            return
        }
        #expect(fault == .clock)
        #expect(text.contains("clock"), "\(text)")
    }
}
