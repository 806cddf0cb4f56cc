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
        + " [--strict] [--json]"
    static let options: [Option] = [
        .value("state", "DIR", "where keys and certificates go; default a new folder"),
        .value("port-base", "N", "the first of eight ports in a row; default free ones"),
        .value("faults", "FILE", "what goes wrong, as JSON"),
        .value("journal", "FILE", "append every request that is received, one JSON object a line"),
        .flag("bodies", "the journal keeps what was received too, in base64"),
        .flag("strict", "unknown tokens are refused as malformed; default: every token is live"),
        .json,
    ]
    static let details = """
        Listens on the loopback interface, over TLS with a certificate authority of its own, and
        writes into DIR: ca.pem, AuthKey.p8, service-account.json, vapid.pem, expo-token and
        bugle.apps.json, which is the section apps of a configuration that uses them; AuthKey-2.p8,
        key id KEY0000002, and service-account-2.json are as good, for rotations. All are made anew
        at each start. --json prints the addresses as one line of JSON. SIGTERM or Ctrl-C ends it.

        APNs enforces: POST /3/device/TOKEN and POST /4/broadcasts/apps/BUNDLE; a provider token
        (ES256, key and team known, at most an hour old, new ones 20 minutes apart, one team and key
        for each connection, the key's environment) or a client certificate (its topics, its
        environment); one stream until a token was accepted; no header field twice; the topic with
        the ending of its push type; priority 1, 5 or 10, of background 5; apns-id, apns-expiration,
        apns-collapse-id up to \(figure(Limits.apnsCollapseBytes)) bytes; \
        \(figure(Limits.apnsPayloadBytes)) bytes, VoIP \(figure(Limits.apnsVoIPPayloadBytes)), \
        channels \(figure(Limits.apnsBroadcastPayloadBytes)); a JSON object.
        Channels: known in that environment, push type liveactivity, no expiration where nothing is
        stored; create, list, read and delete with Apple's faults, \(figure(Limits.apnsChannels)) for an app. \
        What APNs takes
        and then drops (alert with nothing to show, an activity without content-state) the journal
        counts as advice.

        FCM enforces: the path of a known project; an access token that its own token endpoint issued
        for it (RS256 assertion, scope, audience, an hour at most, 5 minutes of skew); one target of
        token, fid, topic and condition; known fields with their types; strings in data, no reserved
        names; \(figure(Limits.fcmPayloadBytes)) bytes, topics and conditions \
        \(figure(Limits.fcmTopicPayloadBytes)); ttl up to \
        \(figure(Int(Limits.fcmTimeToLiveSeconds / 86_400))) days;
        \(figure(Limits.fcmConditionTopics)) topics in a condition; https links; labels; colours,
        durations, times, lights and enumerations of what
        Android shows; one kind in android_v2; priority 5 for data alone to Apple devices; a project's
        quota; no second PING while idle.

        Web push endpoints are https://NAME.localhost:PORT/push/ANYTHING, where NAME says whose
        service answers: google, mozilla, apple, windows, other. Enforced are a valid VAPID token
        (signature, audience, at most 24 h, a subject, for Apple one at a public host), TTL, Urgency,
        the syntax of Topic, aes128gcm in one record with a valid key that is not the VAPID key, at
        most \(figure(Limits.webPushBodyBytes)) bytes, and Windows' cache policy. A push without a body is taken.

        Expo's tokens tell what becomes of their messages: ExponentPushToken[NAME-...] fails with an
        error of that name, such as DeviceNotRegistered, [receipt-NAME-...] in the receipt,
        [late-...] has a receipt when it is asked for twice, [project-NAME-...] belongs to a project
        of that name. Enforced are the access token, \(figure(Limits.expoMessages)) recipients in a \
        request, all of one
        project, \(figure(Limits.expoPerSecond)) a second, the fields and their types, \
        \(figure(Limits.expoPayloadBytes)) bytes of texts, data and image
        address with \(figure(Limits.expoEnvelope)) around them, \
        \(figure(Limits.expoReceipts)) receipts in a question, which are gone after 24 h.

        All but APNs tell the time (date) in their answers.

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

    /// A number as people write it: 4,096.
    static func figure(_ number: Int) -> String {
        var digits = String(number)
        var place = digits.count - 3
        while place > 0 {
            digits.insert(",", at: digits.index(digits.startIndex, offsetBy: place))
            place -= 3
        }
        return digits
    }

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        var options = SimulatorOptions()
        if let path = arguments.text("faults") { options.faults = try plan(path) }
        if arguments.has("strict") { options.unknownTokens = .malformed }
        if arguments.has("bodies") { options.journal = .full(bodies: true) }
        if let base = try arguments.integer("port-base", in: 1...65_528) {
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
        object.string("apns_channels", simulator.address(of: .apnsChannels))
        object.string("apns_channels_sandbox", simulator.address(of: .apnsChannelsSandbox))
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
            "APNs channels    \(simulator.address(of: .apnsChannels)), sandbox "
                + simulator.address(of: .apnsChannelsSandbox),
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
