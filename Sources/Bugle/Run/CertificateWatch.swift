internal import Base
internal import Crypto
internal import Telemetry

/// Tells when a certificate that the configuration names is about to end, has ended or cannot be
/// read, and when it is good again: one line for each change, and one a day while it is not good.
/// Used by one thread.
internal final class CertificateWatch {
    private enum Standing {
        case good, endsSoon, ended, unreadable
    }

    private let files: [(setting: String, path: String)]
    private let log: Log
    private let timeLeft: (String) -> TimeSpan?
    private var told: [String: (standing: Standing, at: MonotonicTime)] = [:]
    private var lookAt: MonotonicTime?

    /// From here on it is told: the bound of the alert `BugleCertificateEnds`.
    static let warning = TimeSpan.hours(14 * 24)
    private static let interval = TimeSpan.minutes(1)
    private static let reminder = TimeSpan.hours(24)

    /// Watches these files; `timeLeft` reads one and is nil where it cannot.
    init(
        _ files: [(setting: String, path: String)], log: Log,
        timeLeft: @escaping (String) -> TimeSpan? = CertificateExpiry.timeLeft
    ) {
        self.files = files
        self.log = log
        self.timeLeft = timeLeft
    }

    /// Looks once a minute, however often it is called.
    func poll(at now: MonotonicTime) {
        guard lookAt.map({ $0 <= now }) ?? true else { return }
        lookAt = now + Self.interval
        for (setting, path) in files { look(setting, path, at: now) }
    }

    private func look(_ setting: String, _ path: String, at now: MonotonicTime) {
        let left = timeLeft(path)
        let standing: Standing =
            switch left {
            case nil: .unreadable
            case let left? where left <= .zero: .ended
            case let left? where left < Self.warning: .endsSoon
            default: .good
            }
        let before = told[setting]?.standing ?? .good
        let isDue = told[setting].map { now - $0.at >= Self.reminder } ?? true
        guard standing != before || (standing != .good && isDue) else { return }
        told[setting] = (standing, now)
        let fields: Log.Fields = [
            "setting": LogValue(setting), "file": LogValue(path),
            "days_left": LogValue((left?.millis ?? 0) / 86_400_000),
        ]
        switch standing {
        case .good: log.info("a certificate was renewed", fields)
        case .endsSoon: log.warning("a certificate ends soon: renew it", fields)
        case .ended:
            log.error("a certificate has ended: connections that need it fail", fields)
        case .unreadable: log.error("a certificate cannot be read: put it back", fields)
        }
    }
}
