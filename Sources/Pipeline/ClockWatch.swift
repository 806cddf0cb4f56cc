// Whether this machine's clock is right, as the gateways' clocks say: tokens are signed with the
// time, and a clock that runs away is refused everywhere at once, with words that blame the keys.

internal import Base
internal import Gateways
internal import Synchronization
internal import Telemetry

/// The clocks of gateways compared with this machine's. Safe on any thread.
internal final class ClockWatch: Sendable {
    private struct Reading {
        var ahead = TimeSpan.zero
        var isWrong = false
    }

    private let readings = Mutex<[Gateway: Reading]>([:])
    private let log: Log

    /// From here on a difference is told: an answer's time has whole seconds, and takes its way.
    private static let tolerance = TimeSpan.seconds(5)
    /// How often a lane looks at the time in a gateway's answers.
    static let interval = TimeSpan.seconds(10)

    init(_ log: Log, _ registry: MetricsRegistry) {
        self.log = log
        for gateway in Gateway.allCases where gateway != .apns {
            // APNs does not tell its time.
            registry.gauge(
                "bugle_clock_skew_seconds",
                help: "How far a gateway's clock is ahead of this machine's; 0 while it is right.",
                labels: [("gateway", gateway.rawValue)]
            ) { [self] in readings.withLock { $0[gateway]?.ahead.seconds ?? 0 } }
        }
    }

    /// Takes note of the time in an answer that came after so long.
    func note(_ ahead: TimeSpan, of gateway: Gateway, after roundTrip: TimeSpan) {
        let isWrong = abs(ahead.nanos) > Self.tolerance.nanos + roundTrip.nanos
        let wasWrong = readings.withLock { readings in
            let before = readings[gateway]?.isWrong ?? false
            readings[gateway] = Reading(ahead: isWrong ? ahead : .zero, isWrong: isWrong)
            return before
        }
        guard isWrong != wasWrong else { return }
        guard isWrong else {
            return log.info(
                "this machine's clock is right again", ["gateway": LogValue(gateway.rawValue)])
        }
        log.warning(
            "this machine's clock is wrong: gateways refuse tokens of a wrong time; run a time service",
            [
                "gateway": LogValue(gateway.rawValue),
                "behind_ms": LogValue(ahead.millis),
            ])
    }
}
