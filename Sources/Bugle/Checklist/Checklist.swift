// The checklist before production, line by line. What can be tried on the spot is tried: requests are
// built and answers judged by the code that does so in earnest. What takes servers names the tests
// that show it.

internal import Base
internal import Config
internal import Gateways
internal import JSON
internal import Pipeline
internal import Routes

/// One line of the checklist with its answer.
internal struct ChecklistLine: Equatable {
    enum State: String {
        /// Held, as tried now or as the configuration says.
        case ok
        /// Held by Bugle, and the configuration could do better.
        case warning
        /// Not held.
        case error
        /// Up to somebody else.
        case yours
    }

    var number: Int
    var demand: String
    var state: State
    var answer: String
    /// What shows it: a command or a test.
    var shownBy: String
}

/// Answers the checklist for a configuration.
internal struct Checklist {
    let configuration: Configuration
    /// Warnings about routes; nil when they cannot be read.
    let lints: [RouteLint]?

    func run() -> [ChecklistLine] {
        [
            line(
                1, "registration is an atomic upsert",
                .ok,
                "one record an address on \(topics.devices), applied in its order; a token that "
                    + "moves leaves its former user first. topics/registry has the SQL",
                "test_registry.py, TokenIndexTests"),
            line(
                2, "logout unlinks at once", .ok,
                "a look-up older than 1 s is repeated before a request is written; a lag over "
                    + "\(configuration.index.lagMax.millis / 1000) s holds sends back",
                "OwnershipTests, test_registry_feed.py"),
            verdicts(), worstUnicode(), alertHeaders(), silentHeaders(), personalData(),
            connections(),
            line(
                9, "FCM tokens are cached and refreshed ahead", .ok,
                "one a process, fetched anew before it ends, kept while the endpoint is down",
                "OAuthTests; bugle_credential_token_age_seconds"),
            backOff(), collapse(),
            line(
                12, "the client keeps an install id and uploads its token with a version", .yours,
                "Bugle orders uploads by version and ignores older ones", "topics/README.md"),
            line(
                13, "the client drops a push that is not for its current user", .yours,
                "every payload has bugle.aud, the audience it is for",
                "topics/payload-block.schema.json"),
            line(
                14, "the client pulls the truth; a push is a hint", .yours,
                "events may carry a cursor, which rides in every payload", "topics/routes.md"),
            line(
                15, "the client acknowledges what it got", .yours,
                "on \(topics.acks); Bugle counts a sample of them", "bugle_ack_sampled_pushes_total"
            ),
        ]
    }

    private var topics: Configuration.Topics { configuration.kafka.topics }

    private func line(
        _ number: Int, _ demand: String, _ state: ChecklistLine.State, _ answer: String,
        _ shownBy: String
    ) -> ChecklistLine {
        ChecklistLine(
            number: number, demand: demand, state: state, answer: answer, shownBy: shownBy)
    }

    /// Appends the answers as one object.
    static func write(_ lines: [ChecklistLine], to bytes: ByteWriter) {
        var object = JSONObjectWriter(bytes)
        object.bool("ok", !lines.contains { $0.state == .error })
        object.name("checklist")
        bytes.append("[")
        for (index, line) in lines.enumerated() {
            if index > 0 { bytes.append(",") }
            var entry = JSONObjectWriter(bytes)
            entry.integer("number", Int64(line.number))
            entry.string("demand", line.demand)
            entry.string("state", line.state.rawValue)
            entry.string("answer", line.answer)
            entry.string("shown_by", line.shownBy)
            entry.end()
        }
        bytes.append("]")
        object.end()
    }

    // MARK: Tried now

    private func verdicts() -> ChecklistLine {
        let parser = JSONParser()
        let now = SystemTime.shared.wall
        let sent = SentRequest(sentAt: now, registeredAt: UnixMillis(0))
        func ends(_ judge: (GatewayAnswer) -> Verdict, _ status: Int, _ body: String) -> Bool {
            Array(body.utf8).withUnsafeBytes {
                let verdict = judge(GatewayAnswer(status: status, body: $0, now: now))
                guard case .final(.tokenInvalid) = verdict.course,
                    case .invalidate = verdict.tokenAction
                else { return false }
                return true
            }
        }
        let apns = ends(
            { APNsVerdict.judge($0, sent: sent, parser: parser) }, 410,
            #"{"reason":"Unregistered","timestamp":\#(now.value)}"#)
        let fcm = ends(
            { FCMVerdict.judge($0, sent: sent, parser: parser) }, 404,
            #"{"error":{"code":404,"status":"NOT_FOUND","details":[{"@type":"type.googleapis.com/google.firebase.fcm.v1.FcmError","errorCode":"UNREGISTERED"}]}}"#
        )
        return line(
            3, "410 and UNREGISTERED end a token by themselves", apns && fcm ? .ok : .error,
            "tried now: both answers become a verdict on \(topics.invalidations), committed with "
                + "the result", "APNsVerdictTests, FCMVerdictTests, test_loop.py")
    }

    private func worstUnicode() -> ChecklistLine {
        // Four bytes a letter in UTF-8, and joined ones that must not be torn.
        let body = String(repeating: "👩‍👩‍👧‍👦\\u0000é", count: 400)
        let built = build(#"{"notification":{"title":"x","body":"\#(body)"}}"#)
        var isRefused = false
        if case .tooLarge(let bytes, let limit) = built?.rendering {
            isRefused = bytes > limit && limit == 4096
        }
        let fits = build(#"{"notification":{"title":"👩‍👩‍👧‍👦","body":"\u0001é"}}"#)
        let isWritten = (fits?.request.body.count ?? .max) <= 4096
        return line(
            4, "payloads stay within 4,096 bytes with the worst Unicode",
            isRefused && isWritten ? .ok : .error,
            "tried now: a larger one is noticed before it is sent; its body is cut between letters, "
                + "or it ends rejected, payload_too_large",
            "bugle explain; APNsRendererTests, FCMRendererTests, RouteContentTests")
    }

    private func alertHeaders() -> ChecklistLine {
        let built = build(#"{"notification":{"title":"x"}}"#)
        let isRight =
            built?.request.text("apns-push-type") == "alert"
            && ["10", "5"].contains(built?.request.text("apns-priority"))
        return line(
            5, "alerts carry type and priority", isRight ? .ok : .error,
            "tried now: apns-push-type alert, apns-priority \(built?.request.text("apns-priority") ?? "none")",
            "bugle explain; APNsRendererTests")
    }

    private func silentHeaders() -> ChecklistLine {
        let built = build(#"{"data":{"a":1}}"#)
        let body = built?.request.body.text ?? ""
        let isRight =
            built?.request.text("apns-push-type") == "background"
            && built?.request.text("apns-priority") == "5"
            && body.contains(#""content-available":1"#)
            && !["\"alert\"", "\"sound\"", "\"badge\""].contains(where: body.contains)
        return line(
            6, "silent pushes: content-available, nothing to display, background, priority 5",
            isRight ? .ok : .error, "tried now: \(isRight ? "so it is" : "it is not so")",
            "bugle explain; APNsRendererTests")
    }

    private func collapse() -> ChecklistLine {
        let built = build(#"{"notification":{"title":"x"}}"#, collapseKey: "room-12")
        let isRight = built?.request.text("apns-collapse-id")?.isEmpty == false
        return line(
            11, "bursts use collapse ids on both gateways", isRight ? .ok : .error,
            "tried now: apns-collapse-id, and Android's tag, from collapse_key or the route's "
                + "collapse; FCM's collapse_key from fcm_collapse, at most 4 per app",
            "CoalesceTests, FCMRendererTests, test_bursts.py")
    }

    private func build(
        _ json: String, collapseKey: String? = nil
    ) -> (rendering: Rendering, request: OutboundRequest)? {
        let parser = JSONParser()
        guard let event = try? parser.parse(json) else { return nil }
        let id = UUIDBytes(high: 0x2222_2222_2222_5222, low: 0x9222_2222_2222_2222)
        let content = PushContent(
            messageID: id, eventType: "checklist", eventIdentity: id, now: SystemTime.shared.wall)
        content.collapseKey = collapseKey
        do {
            try content.take(
                notification: event["notification"], data: event["data"], apns: nil, fcm: nil,
                webpush: nil, expo: nil)
        } catch {
            return nil
        }
        let renderer = APNsRenderer(APNsSettings(topic: "com.example.app"))
        let token = Array(String(repeating: "ab", count: 32).utf8)
        let request = OutboundRequest()
        let rendering = token.withUnsafeBytes { token in
            renderer.render(
                content,
                to: PushTarget(
                    gateway: .apns, environment: .production, token: token, apnsTopic: nil,
                    platform: nil, registeredAt: UnixMillis(0), kind: .alert),
                authorization: ProviderToken(
                    header: Array("bearer x".utf8), generation: 1,
                    mintedAt: MonotonicTime(nanos: 0)), into: request)
        }
        return (rendering, request)
    }

    // MARK: Out of the configuration

    private func personalData() -> ChecklistLine {
        guard let lints else {
            return line(
                7, "no plain personal data in payloads", .error,
                "the routes cannot be read: bugle check says why", "bugle check")
        }
        let clear = lints.filter { $0.message.contains("goes out in clear") }
        return line(
            7, "no plain personal data in payloads", clear.isEmpty ? .ok : .warning,
            clear.isEmpty
                ? "no route sends what it calls sensitive; what a route does not call so is yours to judge"
                : clear.map(\.description).joined(separator: "; "),
            "bugle check, bugle explain; RouteTableTests, SensitiveValueTests")
    }

    private func connections() -> ChecklistLine {
        let apns = configuration.dispatch.apnsConnections.range
        let fcm = configuration.dispatch.fcmConnections.range
        return line(
            8, "APNs connections persist and multiplex", .ok,
            "\(apns.lowerBound) to \(apns.upperBound) lasting HTTP/2 connections to APNs, "
                + "\(fcm.lowerBound) to \(fcm.upperBound) to FCM, each with many streams",
            "PoolTests; bugle_connections, bugle_connections_opened_total")
    }

    private func backOff() -> ChecklistLine {
        let retry = configuration.dispatch.retry
        return line(
            10, "429, 500 and 503 get bounded back-off with full jitter",
            retry.attempts > 1 ? .ok : .warning,
            "\(retry.attempts) attempts, first wait up to \(retry.base.millis) ms, doubled, full "
                + "jitter, never less than the vendor asks"
                + (retry.attempts > 1 ? "" : "; with one attempt nothing is tried again"),
            "bugle check; RetryTests, APNsVerdictTests, FCMVerdictTests")
    }
}
