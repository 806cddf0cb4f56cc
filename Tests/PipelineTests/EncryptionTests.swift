import Base
import Config
import Crypto
import Gateways
import JSON
import Routes
import Testing
import TokenIndex

@testable import Pipeline

@Suite(.serialized) struct `Encrypted content` {
    private static let route = """
          bank.transfer:
            encrypt: true
            ttl: 1h
            importance: high
            title: "{{payload.amount}} from {{payload.sender}}"
            body: "Reference {{payload.reference}}"
            link: "https://bank.example.com/t/{{payload.id}}"
            actions: [{id: thank, title: "Thank {{payload.sender}}"}]
            data: {iban: "{{payload.iban}}"}
            category: TRANSFER
            fallback: {title: "Your bank", body: "There is news about your account"}
            translations: {de: {fallback: {title: "Ihre Bank"}}}
          quiet: {kind: silent, encrypt: true, data: {iban: "{{payload.iban}}"}}

        """
    private static let payload =
        #"{"id":"t-77","amount":"1,250 €","sender":"Grace","reference":"rent","iban":"DE00 1"}"#

    private let key: DevicePrivateKey

    init() throws { key = try DevicePrivateKey.generate() }

    private var publicKeys: String { publicKeys("k1") }

    private func publicKeys(_ kid: String) -> String {
        #"[{"kid":"\#(kid)","jwk":{"kty":"EC","crv":"P-256","x":"\#(Base64URL.encode(key.x))","#
            + #""y":"\#(Base64URL.encode(key.y))"}}]"#
    }

    private func open(_ body: String) throws -> String {
        let start = try #require(body.firstRange(of: "jwe")).upperBound
        let text = body[start...].drop { $0 == ":" || $0 == "\\" || $0 == "\"" }
            .prefix { $0 != "\"" && $0 != "\\" }
        let message = try #require(SealedMessage(String(text)))
        #expect(message.app == "shop" && message.keyID == "k1")
        return String(decoding: try #require(message.open(with: key)), as: UTF8.self)
    }

    @Test func `each device gets its own, and who has no key nothing`() throws {
        let gateway = try ScriptedGateway()
        let world = try World(gateway)
        world.settings.routes = try routes(Self.route)
        try world.register("one", user: "u1", extra: #","public_keys":\#(publicKeys)"#)
        try world.register(
            "two", user: "u1", extra: #","locale":"de","public_keys":\#(publicKeys)"#)
        try world.register("none", user: "u1")
        try world.register("empty", user: "u1", extra: #","public_keys":[]"#)
        let wrong = publicKeys.replacing("P-256", with: "P-384")
        try world.register("wrong", user: "u1", extra: #","public_keys":\#(wrong)"#)
        let off = publicKeys.replacing(Base64URL.encode(key.y), with: Base64URL.encode(key.x))
        try world.register("off", user: "u1", extra: #","public_keys":\#(off)"#)
        try world.start()
        for type in ["bank.transfer", "quiet"] {
            try world.publish(
                #"{"id":"\#(type)","type":"\#(type)","user_id":"u1","payload":\#(Self.payload)}"#,
                key: "u1")
        }
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: 12)
        #expect(world.stop())
        func told(_ install: String, _ name: String) -> Set<String?> {
            Set(results.filter { $0.text("install_id") == install }.map { $0.text(name) })
        }
        for install in ["one", "two"] { #expect(told(install, "outcome") == ["accepted"]) }
        for install in ["none", "empty"] {
            #expect(told(install, "outcome") == ["suppressed"])
            #expect(told(install, "reason") == ["no_device_key"])
        }
        for install in ["wrong", "off"] {
            #expect(told(install, "outcome") == ["rejected"])
            #expect(told(install, "reason") == ["malformed_device_key"])
        }
        #expect(
            told("off", "detail") == ["public_keys[0]: x and y are no point of the curve"])
        #expect(gateway.seen.count == 4)
        for seen in gateway.seen {
            #expect(
                !["Grace", "1,250", "rent", "DE00", "t-77"].contains { seen.body.contains($0) })
            #expect(try open(seen.body).contains(#""data":{"iban":"DE00 1"}"#))
        }
        let alerts = gateway.seen.filter { $0.body.contains("mutable-content") }
        #expect(alerts.count == 2)
        #expect(
            Set(alerts.map { $0.body.contains(#""alert":{"title":"Ihre Bank","body":"There is"#) })
                == [true, false])
        let secret = try open(try #require(alerts.first).body)
        #expect(
            secret == #"{"notification":{"title":"1,250 € from Grace","body":"Reference rent","#
                + #""link":"https://bank.example.com/t/t-77","#
                + #""actions":[{"id":"thank","title":"Thank Grace"}]},"data":{"iban":"DE00 1"}}"#)
        let silent = gateway.seen.filter { $0.body.contains("content-available") }
        #expect(silent.count == 2 && silent.allSatisfy { !$0.body.contains("alert") })
    }

    // MARK: Every gateway

    private func explained(
        _ event: String, on gateway: Gateway, keys: String? = nil, platform: String? = nil,
        route: String = Self.route
    ) throws -> Explanation.Answer {
        try Explained(routes: route).answer(
            to: event, on: gateway, platform: platform,
            #","public_keys":\#(keys ?? publicKeys)"#)
    }

    private func request(_ answer: Explanation.Answer) throws -> Explanation.Request {
        guard case .request(let request) = answer else {
            throw ContentError(field: "answer", problem: "\(answer)")
        }
        return request
    }

    private static func event(reference: String = "rent", _ more: String = "") -> String {
        #"{"id":"e","type":"bank.transfer","user_id":"u1","payload":"#
            + payload.replacing("rent", with: reference) + more + "}"
    }

    @Test(arguments: Gateway.allCases)
    func `a gateway sees the general text and no more`(_ gateway: Gateway) throws {
        for platform in gateway == .fcm ? ["android", "ios", "web"] : [nil] {
            let request = try request(
                try explained(Self.event(), on: gateway, platform: platform))
            #expect(
                !["Grace", "1,250", "rent", "DE00", "t-77"].contains { request.body.contains($0) })
            #expect(request.body.contains("There is news about your account"))
            #expect(request.body.contains("TRANSFER") || gateway == .webpush || platform != nil)
            #expect(try open(request.body).contains("1,250 € from Grace"))
            // What is announced as the plaintext is what was encrypted.
            #expect(try open(request.body) == request.secret)
        }
    }

    @Test func `on Android the app shows it, unless the route says otherwise`() throws {
        let own = try request(
            try explained(Self.event(), on: .fcm, platform: "android"))
        #expect(own.body.contains(#"\"notification\":{\"tag\":\""#))
        #expect(own.body.contains(#"\",\"title\":\"Your bank\""#))
        let system = try request(
            try explained(
                Self.event(), on: .fcm, platform: "android",
                route: Self.route.replacing(
                    "importance: high", with: "android_display: system")))
        #expect(system.body.contains(#""notification":{"title":"Your bank""#))
        #expect(try open(system.body).contains("Grace"))
    }

    @Test(arguments: Gateway.allCases)
    func `what is encrypted shrinks as the clear text would`(_ gateway: Gateway) throws {
        let family = "👨‍👩‍👧‍👦"
        let event = Self.event(reference: String(repeating: family, count: 400))
        let limit = gateway == .webpush ? 3993 : 4096
        let request = try request(try explained(event, on: gateway))
        let secret = try open(request.body)
        #expect(secret.contains("\(family)…\"") && secret.contains("DE00 1"))
        guard gateway == .apns else { return }
        // As long as it can be: a family is 25 bytes, which are 34 in base64url.
        #expect(request.bodyBytes <= limit && request.bodyBytes > limit - 34 - 6)
    }

    @Test func `data that is too large is refused with its size`() throws {
        let event = Self.event().replacing("DE00 1", with: String(repeating: "9", count: 4000))
        guard case .rejected(let reason, let detail) = try explained(event, on: .apns) else {
            Issue.record("sent")
            return
        }
        #expect(reason == "payload_too_large" && detail.hasSuffix("4096 are allowed"))
    }

    @Test func `an event cannot make it clear`() throws {
        func refusal(_ more: String, type: String = "bank.transfer") -> String? {
            do {
                let event = Self.event(more).replacing("bank.transfer", with: type)
                _ = try explained(event, on: .apns)
                return nil
            } catch let error as EventCheck.Refusal {
                return error.reason
            } catch { return "\(error)" }
        }
        for gateway in ["apns", "fcm", "webpush", "expo"] {
            #expect(
                refusal(#","\#(gateway)":{"a":1}"#)
                    == "route bank.transfer: \(gateway) would go out in clear, and the route"
                    + " encrypts")
        }
        #expect(
            refusal(#","notification":{"title":"secret"}"#, type: "quiet")
                == "route quiet: notification would be shown in clear, and the route has no general"
                + " text")
        // An event's own words are words like the route's.
        let request = try request(
            try explained(
                Self.event(#","notification":{"title":"Iban","ticker":"Ticker","badge":3}"#),
                on: .apns))
        #expect(!request.body.contains("Iban") && !request.body.contains("Ticker"))
        #expect(request.body.contains(#""badge":3"#))
        #expect(try open(request.body).contains(#""title":"Iban""#))
        #expect(try open(request.body).contains(#""ticker":"Ticker""#))
    }
}
