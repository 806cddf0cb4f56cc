// The credentials that pushes carry now, for whoever asks about them: they may be replaced while
// the process runs.

internal import Base
internal import Gateways
internal import Synchronization
internal import Telemetry

/// The apps of a dispatcher with their present credentials. Safe on any thread.
internal final class CredentialsInForce: Sendable {
    private let apps: Mutex<[PushApp]>

    init(_ apps: [PushApp]) { self.apps = Mutex(apps) }

    func take(_ app: PushApp) {
        apps.withLock { apps in
            if let index = apps.firstIndex(where: { $0.name == app.name }) { apps[index] = app }
        }
    }

    private func app(named name: String) -> PushApp? {
        apps.withLock { $0.first { $0.name == name } }
    }

    /// Registers what is known of the credentials. Keys of APNs and service accounts have no end;
    /// their tokens have, and are replaced ahead of it.
    func register(in registry: MetricsRegistry) {
        let age = "bugle_credential_token_age_seconds"
        let ageHelp = "Age of the token that requests carry; 0 before the first."
        for app in apps.withLock({ $0 }) {
            func gauge(
                _ name: String, _ help: String, _ gateway: Gateway,
                _ read: @escaping @Sendable (PushApp?) -> Double
            ) {
                let labels = [("app", app.name), ("gateway", gateway.rawValue)]
                registry.gauge(name, help: help, labels: labels) { [self] in
                    read(self.app(named: app.name))
                }
            }
            if app.apns != nil {
                gauge(age, ageHelp, .apns) { app in
                    app?.apns?.credential.age(at: SystemTime.shared.monotonic)?.seconds ?? 0
                }
            }
            if app.fcm != nil {
                gauge(age, ageHelp, .fcm) { app in
                    app?.fcm?.tokens.credential.age(at: SystemTime.shared.monotonic)?.seconds ?? 0
                }
                gauge(
                    "bugle_credential_refused",
                    "1 while the token endpoint refuses the credential.", .fcm
                ) { app in
                    app?.fcm?.tokens.credential.fault.map { $0.fault == .none ? 0 : 1 } ?? 0
                }
            }
        }
    }
}
