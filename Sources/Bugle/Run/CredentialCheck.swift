internal import Base
internal import Config
internal import Gateways
internal import Pipeline

/// What gateways say to an app's credentials: each is tried with a request that reaches no device.
internal struct CredentialCheck {
    let configuration: Configuration

    init(_ configuration: Configuration) { self.configuration = configuration }

    /// From here on tokens of a wrong clock are at risk.
    private static let clockTolerance = TimeSpan.seconds(5)

    func run() -> [Finding] {
        let prover: CredentialProver
        let access: GatewayAccess
        do throws(PushAppError) {
            access = try GatewayAccess(configuration)
        } catch {
            return [.error("\(error)")]
        }
        do throws(DispatcherError) {
            prover = try CredentialProver(access)
        } catch {
            return [.error("\(error)")]
        }
        defer { prover.stop() }
        let loader = PushAppLoader()
        loader.sharedCAFile = configuration.egress.caFile
        var findings: [Finding] = []
        for settings in configuration.apps {
            // What is wrong with a file is told by the check of the files.
            guard let app = try? loader.load(settings) else { continue }
            for gateway in Gateway.allCases where app.has(gateway) {
                findings += check(app, gateway, prover)
            }
        }
        return findings
    }

    private func check(
        _ app: PushApp, _ gateway: Gateway, _ prover: CredentialProver
    ) -> [Finding] {
        let place = "apps.\(app.name).\(gateway.rawValue)"
        let trials = prover.prove(app, gateway)
        guard !trials.isEmpty else { return [.warning("\(place): no answer in time")] }
        return trials.flatMap { trial in
            [finding(trial, place, gateway, app)]
                + (Self.finding(clockAhead: trial.clockAhead, place).map { [$0] } ?? [])
        }
    }

    private func finding(
        _ trial: CredentialTrial, _ place: String, _ gateway: Gateway, _ app: PushApp
    ) -> Finding {
        let environment = trial.environment == .none ? "" : "\(trial.environment.rawValue): "
        switch trial.verdict {
        case .proven: return .ok("\(place): \(Self.praise(gateway, trial.environment, app))")
        // A key may be one of the other environment, and nobody there.
        case .refused(.config, let text) where text.contains("other environment"):
            return .warning(
                "\(place): \(environment)\(text): pushes to devices there end as credential_error")
        case .refused(_, let text): return .error("\(place): \(environment)\(text)")
        case .unclear(let text): return .warning("\(place): \(environment)\(text); not tried")
        }
    }

    private static func praise(
        _ gateway: Gateway, _ environment: GatewayEnvironment, _ app: PushApp
    ) -> String {
        let name = app.credentialName(at: gateway) ?? ""
        switch gateway {
        case .apns:
            let topic = app.apns?.topic ?? app.certificateAPNs?.topic ?? ""
            return "\(environment.rawValue) takes \(name) for \(topic)"
        case .fcm: return "FCM takes \(name) for the project \(app.fcm?.projectID ?? "")"
        case .webpush:
            return "\(name) sign; push services take any key, and compare it with the one that a "
                + "subscription was made with"
        case .expo:
            return app.expo?.credential.isEmpty == true
                ? "Expo answers; without an access token nothing can be tried, and projects with "
                    + "enhanced push security refuse every message"
                : "Expo takes the access token"
        }
    }

    /// What is to be said of a gateway's clock; nil for nothing, also where it told no time.
    static func finding(clockAhead ahead: TimeSpan?, _ place: String) -> Finding? {
        guard let ahead, abs(ahead.nanos) > clockTolerance.nanos else { return nil }
        let word = ahead > .zero ? "behind" : "ahead of"
        return .warning(
            "clock: this machine is \(abs(ahead.millis) / 1000) s \(word) the gateway of "
                + "\(place); gateways refuse tokens of a wrong clock; run a time service")
    }
}
