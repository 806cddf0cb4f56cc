internal import Base
internal import Config
internal import Crypto
internal import Gateways
internal import Kafka
internal import Pipeline
internal import Routes
internal import Telemetry

/// What can be found out about a configuration without asking anybody.
internal struct OfflineCheck {
    let configuration: Configuration

    init(_ configuration: Configuration) { self.configuration = configuration }

    func run() -> [Finding] {
        clients() + topics() + routes() + egress() + configuration.apps.flatMap(credentials)
            + certificates() + clock()
            + retries()
    }

    /// What ends soon is told while there is time to have it renewed.
    private func certificates() -> [Finding] {
        configuration.certificateFiles.compactMap { file in
            CertificateExpiry.timeLeft(path: file.path).flatMap {
                Self.finding(timeLeft: $0, file.setting, file.path)
            }
        }
    }

    /// From here on the end of a certificate is told.
    private static let certificateNotice = TimeSpan.hours(30 * 24)

    /// What is to be said of a certificate that holds for so long; nil for nothing.
    static func finding(timeLeft: TimeSpan, _ setting: String, _ path: String) -> Finding? {
        guard timeLeft < certificateNotice else { return nil }
        let days = Int64(timeLeft.seconds / 86_400)
        let end = timeLeft < .zero ? "ended \(-days) days ago" : "ends in \(days) days"
        return .warning("\(setting): the certificate in \(path) \(end); have it renewed")
    }

    private func clients() -> [Finding] {
        do throws(Failure) {
            let settings = try ClusterAccess.settings(configuration, log: nil)
            _ = try IndexStore(configuration, log: .silent)
            do throws(KafkaError) {
                try settings.validate()
                return []
            } catch {
                return [.error(error.text)]
            }
        } catch {
            return error.lines.map { .error($0) }
        }
    }

    private func topics() -> [Finding] {
        let topics = configuration.kafka.topics
        var findings: [Finding] = []
        var users: [String: String] = [:]
        let named =
            topics.events.map { ("events", $0.name) } + [
                ("devices", topics.devices), ("invalidations", topics.invalidations),
                ("users", topics.users), ("results", topics.results),
                ("dead_letters", topics.deadLetters),
                ("receipts", topics.receipts), ("tickets", topics.tickets),
            ]
        for (key, name) in named {
            guard let other = users.updateValue(key, forKey: name) else { continue }
            findings.append(
                .error(
                    "kafka.topics.\(key): \(name) is kafka.topics.\(other) too"
                        + (key == "dead_letters" && other == "events"
                            ? ": dead letters would be read as events, for ever" : "")
                        + "; give each its own topic"))
        }
        return findings
    }

    private func routes() -> [Finding] {
        do throws(Failure) {
            let table = try ConfigurationFile.routes(of: configuration)
            let lints = table.lints(configuration).map { Finding.warning($0.description) }
            guard !table.isEmpty else {
                return [.note("no routes: only events that bring their own content are sent")]
            }
            let names = table.routes.map { "\($0.name) (\($0.kind.rawValue))" }
            return [.ok("routes: \(names.joined(separator: ", "))")] + lints
        } catch {
            return error.lines.map { .error($0) }
        }
    }

    private func egress() -> [Finding] {
        do throws(PushAppError) {
            _ = try GatewayAccess(configuration)
        } catch {
            return [.error("\(error)")]
        }
        if let file = configuration.egress.caFile {
            do throws(TLSError) {
                _ = try TLSAuthorities(file: file)
            } catch {
                return [.error("egress.ca_file: \(error)")]
            }
        }
        return configuration.egress.proxy.map { proxy in
            [.note("gateways are reached through the proxy \(proxy.address)")]
        } ?? []
    }

    private func credentials(_ app: Configuration.App) -> [Finding] {
        do throws(PushAppError) {
            _ = try PushApp.load(app)
        } catch {
            return [.error("\(error)")]
        }
        let gateways = [
            app.apns.map { _ in "APNs" }, app.fcm.map { _ in "FCM" },
            app.webPush.map { "web push (\($0.keys.map(\.id).joined(separator: ", ")))" },
            app.expo.map { $0.accessToken == nil ? "Expo (no access token)" : "Expo" },
        ]
        let names = gateways.compactMap(\.self).joined(separator: ", ")
        return [.ok("app \(app.name): credentials for \(names)")] + dangers(app)
    }

    /// What only tests should be set to.
    private func dangers(_ app: Configuration.App) -> [Finding] {
        guard let webPush = app.webPush else { return [] }
        var findings: [Finding] = []
        if webPush.allowLoopback {
            findings.append(
                .warning(
                    "apps.\(app.name).webpush.allow_loopback: endpoints, which clients choose, may "
                        + "lead to this machine; for tests only"))
        }
        if webPush.allowedHosts?.contains("*") == true {
            findings.append(
                .warning(
                    "apps.\(app.name).webpush.allowed_hosts: every public host is sent to that a "
                        + "client names; name the push services instead"))
        }
        return findings
    }

    /// Tokens are signed with the time: a clock that is years off is worth a word even offline.
    private func clock() -> [Finding] {
        let firstOfJanuary2025 = UnixMillis(1_735_689_600_000)
        guard SystemTime.shared.wall < firstOfJanuary2025 else { return [] }
        return [
            .error("this machine's clock is years behind: gateways refuse its tokens; set it right")
        ]
    }

    /// The waits that hold in the end: the vendors' where they ask for more than the settings.
    private func retries() -> [Finding] {
        let retry = configuration.dispatch.retry
        func wait(_ span: TimeSpan) -> String {
            let text = span.text
            return span > retry.maxWait ? "\(text), through a retry topic" : text
        }
        return [
            "retries: \(retry.attempts) attempts, the first wait up to \(retry.base.text), doubled "
                + "each time, with full jitter; over \(retry.maxWait.text) through a retry topic",
            "retries: APNs 503 Shutdown at least \(wait(APNsLimits.shutdownWait))",
            "retries: APNs 429 TooManyRequests at least \(wait(APNsLimits.tokenBusyWait)), that "
                + "token only",
            "retries: APNs 500, 503 at least \(wait(APNsLimits.serverErrorWait))",
            "retries: FCM 5xx or no answer at least \(wait(FCMLimits.failureWaitMin))",
            "retries: web push 429 Retry-After, without one \(wait(WebPushLimits.throttledWait))",
            "retries: web push 5xx Retry-After, without one \(wait(WebPushLimits.failureWait))",
            "retries: Expo 429 Retry-After, without one \(wait(ExpoLimits.throttledWait)) and twice "
                + "as long each time",
            "retries: Expo 5xx at least \(wait(ExpoLimits.failureWait))",
            "retries: FCM 429 Retry-After, without one \(wait(FCMLimits.quotaWait))",
        ].map { .note($0) }
    }
}

extension TimeSpan {
    /// The span in the largest unit that gives a whole number.
    fileprivate var text: String {
        if millis % 60_000 == 0 && millis > 0 { return "\(millis / 60_000) min" }
        if millis % 1000 == 0 && millis > 0 { return "\(millis / 1000) s" }
        return "\(millis) ms"
    }
}
