import Base
import Gateways
import JSON
import Testing

private let expoToken = "ExponentPushToken[xxxxxxxxxxxxxxxxxxxxxx]"

private func expoTarget(_ token: String = expoToken, platform: String? = nil) -> Address {
    Address(gateway: .expo, token: Array(token.utf8), platform: platform)
}

@Suite struct `Expo messages` {
    private func render(
        _ content: PushContent, to token: String = expoToken, platform: String? = nil
    ) throws -> (Rendering, String) {
        let renderer = ExpoRenderer(try #require(ExpoCredential(accessToken: nil)))
        let message = ByteWriter()
        let rendering = expoTarget(token, platform: platform).lend {
            renderer.render(content, to: $0, into: message)
        }
        return (rendering, message.text)
    }

    @Test func `words go where Expo has them`() throws {
        let event = try Event(
            #"""
            {"notification":{"title":"T","subtitle":"S","body":"B","sound":"default","badge":3,
             "category":"c","channel_id":"ch","image":"https://i","interruption_level":"active",
             "thread_id":"th","mutable_content":true},
             "data":{"a":1,"a":2,"bugle":"mine"},"collapse_key":"order 7"}
            """#)
        let (rendering, text) = try render(event.content)
        #expect(rendering == .request(.droppedReservedKeys))
        let message = try JSONParser().parse(text)
        #expect(message["to"]?.string == expoToken)
        #expect(message["title"]?.string == "T" && message["subtitle"]?.string == "S")
        #expect(message["categoryId"]?.string == "c" && message["channelId"]?.string == "ch")
        #expect(message["richContent"]?["image"]?.string == "https://i")
        #expect(message["badge"]?.int64 == 3 && message["ttl"]?.int64 == 3600)
        #expect(message["priority"]?.string == "high")
        #expect(message["tag"]?.string?.utf8.count == 64)
        #expect(message["data"]?["a"]?.int64 == 2)
        #expect(message["data"]?["bugle"]?["id"]?.string == Event.message.text)
        #expect(message["contentAvailable"] == nil)
    }

    /// Expo's documents: `{critical?: boolean, name?: string | null, volume?: number}`.
    @Test(arguments: [
        (
            #"{"critical":1,"name":"siren.caf","volume":0.5}"#,
            #"{"critical":true,"name":"siren.caf","volume":0.5}"#
        ),
        (#"{"critical":0,"name":"a"}"#, #"{"critical":false,"name":"a"}"#),
        (#"{"volume":1}"#, #"{"volume":1}"#),
    ])
    func `a critical sound has the form that Expo has for it`(sound: String, form: String) throws {
        let event = try Event(#"{"notification":{"title":"T","sound":\#(sound)}}"#)
        let message = try render(event.content).1
        #expect(message.contains(#""sound":\#(form)"#), "\(message)")
    }

    @Test func `a silent event wakes the app and asks for little`() throws {
        let event = try Event(#"{"data":{"feed":"home"},"unread":5}"#)
        let message = try JSONParser().parse(try render(event.content).1)
        #expect(message["contentAvailable"]?.bool == true)
        #expect(message["badge"] == nil, "nothing is shown")
        #expect(message["priority"]?.string == "normal" && message["tag"] == nil)
        // A call rings, though the system shows nothing.
        event.content.kind = .call
        let call = try JSONParser().parse(try render(event.content).1)
        #expect(call["priority"]?.string == "high")
    }

    @Test(arguments: [
        "android", "web", "ios", "ipados", "macos", "watchos", "tvos", "visionos", nil,
    ])
    func `a badge or a sound is something to see on Apple's devices alone`(platform: String?)
        throws
    {
        let event = try Event(#"{"notification":{"badge":3,"sound":"default"}}"#)
        let message = try JSONParser().parse(try render(event.content, platform: platform).1)
        let isApple = platform.map { !["android", "web"].contains($0) } ?? false
        #expect(message["priority"]?.string == (isApple ? "high" : "normal"))
        #expect((message["collapseId"] != nil) == isApple && message["tag"] == nil)
        #expect((message["contentAvailable"] != nil) == (platform == "android"))
        #expect(message["badge"]?.int64 == 3)
    }

    @Test func `what says that there is content says so once`() throws {
        let event = try Event(#"{"notification":{"content_available":true},"data":{}}"#)
        for platform in ["ios", "android", nil] {
            let text = try render(event.content, platform: platform).1
            #expect(text.components(of: "\"contentAvailable\"") == 1, "\(text)")
        }
    }

    @Test(arguments: [
        #"{"notification":{"body":"#,
        #"{"notification":{"title":"t","image":"https://i/i","body":"#,
        #"{"data":{"k":1},"notification":{"subtitle":"s","body":"#,
        #"{"expo":{"richContent":{"image":"https://i/i"}},"notification":{"body":"#,
    ])
    func `a message with all that is around it fits to the byte`(start: String) throws {
        /// The bytes of what Expo hands on, from the message itself.
        func size(_ text: String) throws -> Int {
            let message = try JSONParser().parse(text)
            let texts: [StaticString] = ["title", "subtitle", "body"]
            return texts.reduce(
                200 + (message["data"]?.source.count ?? 0)
                    + (message["richContent"]?["image"]?.stringBytes?.count ?? 0)
            ) { $0 + (message[$1]?.stringBytes?.count ?? 0) }
        }
        func render(_ count: Int) throws -> (Rendering, String) {
            let body = String(repeating: "b", count: count)
            return try self.render(try Event(start + #""\#(body)"}}"#).content)
        }
        let room = 4096 - (try size(try render(1).1)) + 1
        let (fits, text) = try render(room)
        #expect(fits == .request([]))
        #expect(try size(text) == 4096)
        #expect(try render(room + 1).0 == .tooLarge(bytes: 4097, limit: 4096))
    }

    @Test func `an override is merged last and cannot change the address`() throws {
        let event = try Event(
            #"{"notification":{"title":"T"},"expo":{"to":"x","title":"U","priority":null}}"#)
        let message = try JSONParser().parse(try render(event.content).1)
        #expect(message["to"]?.string == expoToken && message["title"]?.string == "U")
        #expect(message["priority"] == nil)
    }

    @Test func `tokens have one of three forms`() throws {
        let content = try Event(#"{"data":{}}"#)
        for good in [expoToken, "ExpoPushToken[a]", "F5741A13-BCDA-434B-A316-5DC0E6FFA94F"] {
            #expect(try render(content.content, to: good).0 == .request([]), "\(good)")
        }
        for bad in [
            "", "ExponentPushToken[abc", "ExponentPushToken[]", "abc", "ExpoPushToken[a\"b]",
            "F5741A13-BCDA-434B-A316-5DC0E6FFA94", String(repeating: "x", count: 300),
        ] {
            guard case .malformedToken = try render(content.content, to: bad).0 else {
                Issue.record("\(bad) was taken")
                continue
            }
        }
    }

    @Test func `too much is not sent`() throws {
        let large = String(repeating: "x", count: 4100)
        for json in [
            #"{"data":{"a":"\#(large)"}}"#, #"{"notification":{"body":"\#(large)"}}"#,
            #"{"data":{},"expo":{"body":"\#(large)"}}"#,
        ] {
            let event = try Event(json)
            guard case .tooLarge(_, limit: 4096) = try render(event.content).0 else {
                Issue.record("\(json.prefix(30)) was taken")
                continue
            }
        }
    }

    @Test func `requests carry the access token and say how they are packed`() throws {
        let credential = try #require(ExpoCredential(accessToken: Secret("abc.def")))
        let request = OutboundRequest()
        ExpoRenderer(credential).writeHead(
            path: ExpoRenderer.sendPath, isCompressed: true, into: request)
        #expect(request.text("authorization") == "Bearer abc.def")
        #expect(request.text("content-encoding") == "gzip")
        #expect(request.text(":path") == "/--/api/v2/push/send")
        #expect(request.text(":authority") == "exp.host")
        #expect(ExpoCredential(accessToken: Secret("a b")) == nil)
        let body = ByteWriter()
        ExpoRenderer.writeReceiptsBody(["a", "b"], to: body)
        #expect(body.text == #"{"ids":["a","b"]}"#)
    }
}

@Suite struct `Expo verdicts` {
    private func ticket(_ error: String) -> String {
        #"{"status":"error","message":"\"\#(expoToken)\" is bad","details":{"error":"\#(error)"}}"#
    }

    private func verdict(_ error: String, sent: SentRequest? = nil) -> Verdict? {
        guard case .tickets(let tickets) = expo(200, #"{"data":[\#(ticket(error))]}"#, sent: sent)
        else { return nil }
        return tickets.first?.verdict
    }

    @Test func `tickets belong to messages by position`() throws {
        let body =
            #"{"data":[{"status":"ok","id":"a"},\#(ticket("DeviceNotRegistered")),"#
            + #"{"status":"ok","id":"c"}]}"#
        guard case .tickets(let tickets) = expo(200, body, messages: 3) else {
            Issue.record("no tickets")
            return
        }
        #expect(tickets.map(\.id) == ["a", nil, "c"])
        #expect(tickets.map(\.verdict.outcome) == [.accepted, .tokenInvalid, .accepted])
        #expect(tickets[1].verdict.tokenAction == .invalidate(asOf: newYear))
        #expect(tickets[1].verdict.detail == #""[token]" is bad"#)
    }

    @Test(arguments: [
        ("DeviceNotRegistered", Outcome.tokenInvalid, Fault.none),
        ("MessageTooBig", .rejected, .none), ("MismatchSenderId", .credentialError, .config),
        ("InvalidCredentials", .credentialError, .config),
        ("InvalidProviderToken", .credentialError, .config),
        ("DeveloperError", .rejected, .ours), ("Unheard", .rejected, .none),
    ])
    func `a ticket's code decides`(_ code: String, _ outcome: Outcome, _ fault: Fault) {
        let verdict = verdict(code)
        #expect(verdict?.outcome == outcome && verdict?.fault == fault)
        #expect(verdict?.countsForFuse == false)
        #expect(verdict?.reason == (code == "Unheard" ? .other : Reason(gatewayCode: code)))
    }

    @Test func `tickets that ask for patience get it`() {
        #expect(verdict("MessageRateExceeded")?.advice?.minimumWait == .seconds(60))
        #expect(verdict("MessageRateExceeded")?.advice?.scope == .token)
        for code in ["ExpoError", "ProviderError"] {
            #expect(verdict(code)?.advice?.minimumWait == .seconds(5))
        }
        let later = SentRequest(sentAt: newYear, registeredAt: newYear + .seconds(1))
        #expect(verdict("DeviceNotRegistered", sent: later)?.outcome == .rejected)
    }

    @Test func `what is no answer to all messages is unclear`() {
        for body in [
            #"{"data":[{"status":"ok","id":"a"}]}"#, #"{"data":[]}"#, "{}", "<html>", "",
            #"{"data":[{"status":"ok"},{"status":"ok"},{"status":"ok"}]}"#,
        ] {
            guard case .unclear = expo(200, body, messages: 2) else {
                Issue.record("\(body)")
                continue
            }
        }
        guard case .tickets(let tickets) = expo(200, #"{"data":{"status":"ok","id":"a"}}"#) else {
            Issue.record("a single ticket")
            return
        }
        #expect(tickets.first?.id == "a")
    }

    private func errors(_ code: String, _ details: String = "{}") -> String {
        #"{"errors":[{"code":"\#(code)","message":"words","details":\#(details)}]}"#
    }

    @Test func `EXPO-01: several projects are told apart`() {
        let details = #"{"@acme/app":["A1","A2"],"@dev/app":["D1"]}"#
        for status in [200, 400] {
            guard
                case .projects(let projects) = expo(
                    status, errors("PUSH_TOO_MANY_EXPERIENCE_IDS", details), messages: 3)
            else {
                Issue.record("\(status)")
                continue
            }
            #expect(projects == ["@acme/app": ["A1", "A2"], "@dev/app": ["D1"]])
        }
    }

    @Test func `a refused request is for all of its messages`() {
        func whole(_ status: Int, _ body: String, _ retryAfter: String? = nil) -> Verdict? {
            if case .whole(let verdict) = expo(
                status, body, messages: 3, retryAfter: retryAfter)
            {
                verdict
            } else {
                nil
            }
        }
        let busy = whole(429, errors("TOO_MANY_REQUESTS"))
        #expect(busy?.advice?.scope == .project && busy?.advice?.minimumWait == .seconds(1))
        #expect(busy?.reason == .expoTooManyRequests)
        #expect(whole(429, "", "17")?.advice?.minimumWait == .seconds(17))
        #expect(whole(401, errors("UNAUTHORIZED"))?.outcome == .credentialError)
        #expect(whole(403, "")?.fault == .credential)
        #expect(whole(500, "")?.advice?.minimumWait == .seconds(5))
        #expect(whole(502, "<html>")?.reason == .serverError)
        for code in ["UNAUTHORIZED", "InvalidCredentials"] {
            let refused = whole(400, errors(code))
            #expect(
                refused?.outcome == .credentialError && refused?.fault == .credential, "\(code)")
        }
        #expect(whole(400, errors("TOO_MANY_REQUESTS"))?.advice?.scope == .project)
        for (status, body) in [
            (400, errors("VALIDATION_ERROR")), (413, ""),
            (400, errors("PUSH_TOO_MANY_NOTIFICATIONS")),
        ] {
            guard case .halve(let verdict) = expo(status, body, messages: 3) else {
                Issue.record("\(status)")
                continue
            }
            #expect(verdict.outcome == .rejected && verdict.tokenAction == .none)
        }
    }

    @Test func `receipts tell of tokens as of the sending, and absent ones are not there yet`() {
        let body =
            Array(
                #"{"data":{"a":{"status":"ok"},"b":{"status":"error","message":"m","details":"#.utf8
            )
            + Array(
                #"{"error":"DeviceNotRegistered"}},"c":{"status":"error","details":{"error":"#
                    .utf8)
            + Array(#""MismatchSenderId"}},"d":{"status":"odd"}}}"#.utf8)
        body.withUnsafeBytes { body in
            let answer = GatewayAnswer(status: 200, body: body, now: newYear)
            let receipts = ExpoVerdict.receipts(answer) { $0 == "b" ? at(-900) : newYear }
            #expect(receipts?.keys.sorted() == ["a", "b", "c"])
            #expect(receipts?["a"]?.isOK == true)
            #expect(receipts?["b"]?.tokenAction == .invalidate(asOf: at(-900)))
            #expect(receipts?["c"]?.fault == .config)
            #expect(receipts?["c"]?.tokenAction == TokenAction.none)
        }
        for (status, text) in [(500, "{}"), (200, "[]"), (200, #"{"errors":[{}]}"#), (200, "")] {
            Array(text.utf8).withUnsafeBytes { body in
                let answer = GatewayAnswer(status: status, body: body, now: newYear)
                #expect(ExpoVerdict.receipts(answer) { _ in newYear } == nil)
            }
        }
    }
}

extension String {
    /// How often a text stands in it.
    fileprivate func components(of text: String) -> Int { split(separator: text).count - 1 }
}
