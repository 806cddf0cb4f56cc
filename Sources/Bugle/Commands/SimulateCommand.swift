internal import Base
internal import JSON
internal import Simulator

/// `bugle simulate`: the gateways as a server.
internal enum SimulateCommand: Command {
    static let name = "simulate"
    static let awaitsSignals = true
    static let summary = "plays the gateways as servers, with faults from a script"
    static let synopsis =
        "simulate [--state DIR] [--port-base N] [--faults FILE] [--journal FILE] [--bodies]"
        + " [--json]"
    static let options: [Option] = [
        .value("state", "DIR", "where keys and certificates go; default a new folder"),
        .value("port-base", "N", "the first of six ports in a row; default free ones"),
        .value("faults", "FILE", "what goes wrong, as JSON"),
        .value("journal", "FILE", "append every request that is received, one JSON object a line"),
        .flag("bodies", "the journal keeps what was received too, in base64"),
        .flag("strict", "unknown tokens are refused as malformed; default: every token is live"),
        .json,
    ]
    static let details = """
        Listens on the loopback interface, over TLS with a certificate authority of its own, and
        writes into DIR: ca.pem, AuthKey.p8, service-account.json, vapid.pem, expo-token and
        bugle.apps.json, which is the section apps of a configuration that uses them. All are made anew at each
        start. --json prints the addresses as one line of JSON. SIGTERM or Ctrl-C ends it.

        Web push endpoints are https://NAME.localhost:PORT/push/ANYTHING, where NAME says whose
        service answers: google, mozilla, apple, windows, other. Enforced are a valid VAPID token
        (signature, audience, at most 24 h, a subject), TTL, Urgency, the syntax of Topic,
        aes128gcm with a valid key and at most 4,096 bytes, and Windows' cache policy.

        Expo's tokens tell what becomes of their messages: ExponentPushToken[NAME-...] fails with an
        error of that name, such as DeviceNotRegistered, [receipt-NAME-...] in the receipt,
        [late-...] has a receipt when it is asked for twice. Enforced are the access token, 100
        messages in a request, all of one project, the fields and their types, 4,096 bytes.

        Faults: {"seed": 7, "rules": [
          {"token_prefix": "dead", "effect": {"answer": {"status": 410, "reason": "Unregistered"}}},
          {"service": "fcm", "probability": 0.01, "effect": {"html": 502}},
          {"effect": {"delay_ms": [5, 40]}}]}
        Conditions: service, token_prefix, token_pattern, connection, connection_request, skip,
        count, every, probability, from_ms, until_ms. Effects: answer, html, delay_ms,
        delay_lognormal_ms, refuse, reset, withhold_answer, play_dead, cut_before, cut_after,
        go_away, settings, withhold_window_updates_ms, ignore_pings, break_tls, stall_tls,
        without_http2, reset_on_accept.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        var options = SimulatorOptions()
        if let path = arguments.text("faults") { options.faults = try plan(path) }
        if arguments.has("strict") { options.unknownTokens = .malformed }
        if arguments.has("bodies") { options.journal = .full(bodies: true) }
        if let base = try arguments.integer("port-base", in: 1...65_530) {
            for (index, service) in SimulatedService.allCases.enumerated() {
                options.ports[service] = UInt16(base + index)
            }
        }
        let journal = try arguments.text("journal").map { path throws(Failure) in
            try JournalFile(path)
        }
        let simulator: Simulator
        do throws(SimulatorError) {
            simulator = try Simulator(options)
        } catch {
            throw .failed("\(error)")
        }
        if let journal { simulator.journal.observe { journal.append($0) } }
        let folder = try StateFolder(arguments.text("state"), purpose: "simulate")
        defer { folder.remove() }
        let files = try GatewayFiles(simulator, folder: folder.path)
        if arguments.has("json") {
            Terminal.print(json(simulator, files))
        } else {
            for line in lines(simulator, files) { Terminal.print(line) }
        }
        _ = ProcessSignals.waitForEnd()
        simulator.stop()
        return .ok
    }

    private static func plan(_ path: String) throws(Failure) -> FaultPlan {
        let file = try EventFile(path)
        do throws(FaultPlanError) {
            return try FaultPlan(json: file.bytes)
        } catch {
            throw .failed("\(path): \(error)")
        }
    }

    private static func json(_ simulator: Simulator, _ files: GatewayFiles) -> String {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.string("apns_production", simulator.address(of: .apnsProduction))
        object.string("apns_sandbox", simulator.address(of: .apnsSandbox))
        object.string("fcm", simulator.address(of: .fcm))
        object.string("token_endpoint", simulator.tokenURI)
        object.string("webpush", simulator.endpoint(of: ""))
        object.string("expo", simulator.address(of: .expo))
        object.string("vapid_public_key", files.vapidPublicKey)
        object.string("ca_file", files.authority)
        object.string("apps_file", files.apps)
        object.string("state", files.folder)
        object.end()
        return bytes.text
    }

    private static func lines(_ simulator: Simulator, _ files: GatewayFiles) -> [String] {
        [
            "APNs production  \(simulator.address(of: .apnsProduction))",
            "APNs sandbox     \(simulator.address(of: .apnsSandbox))",
            "FCM              \(simulator.address(of: .fcm))",
            "FCM tokens       \(simulator.tokenURI)",
            "web push         \(simulator.endpoint(of: "ID")), also google, mozilla, apple and "
                + "windows in place of other",
            "Expo             \(simulator.address(of: .expo))",
            "VAPID key        \(files.vapidPublicKey)",
            "CA certificate   \(files.authority)",
            "section apps     \(files.apps)",
        ]
    }
}
