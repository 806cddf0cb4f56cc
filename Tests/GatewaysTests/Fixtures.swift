import Base
import Crypto
import Gateways
import JSON

/// 2025-01-01T00:00:00Z, the time at which these tests play.
let newYear = UnixMillis(1_735_689_600_000)

func at(_ seconds: Int64) -> UnixMillis { newYear + .seconds(seconds) }

func apns(
    _ status: Int, _ body: String, sent: SentRequest? = nil, date: String? = nil,
    now: UnixMillis = newYear
) -> Verdict {
    Array(body.utf8).withUnsafeBytes {
        APNsVerdict.judge(
            GatewayAnswer(status: status, body: $0, date: date, now: now),
            sent: sent ?? SentRequest(sentAt: now, registeredAt: UnixMillis(0)))
    }
}

func fcm(
    _ status: Int, _ body: String, sent: SentRequest? = nil, retryAfter: String? = nil,
    date: String? = nil, now: UnixMillis = newYear
) -> Verdict {
    Array(body.utf8).withUnsafeBytes {
        FCMVerdict.judge(
            GatewayAnswer(
                status: status, body: $0, retryAfter: retryAfter, date: date, now: now),
            sent: sent ?? SentRequest(sentAt: now, registeredAt: UnixMillis(0)))
    }
}

extension Verdict {
    var outcome: Outcome? {
        if case .final(let outcome) = course { outcome } else { nil }
    }

    var advice: RetryAdvice? {
        if case .retry(let advice) = course { advice } else { nil }
    }
}

/// An event's JSON with the parser that keeps it alive.
struct Event {
    let parser = JSONParser()
    let content: PushContent

    static let identity = UUIDBytes(high: 0x1111_1111_1111_5111, low: 0x9111_1111_1111_1111)
    static let message = UUIDBytes(high: 0x2222_2222_2222_5222, low: 0x9222_2222_2222_2222)

    init(_ json: String, ttl: Int64? = 3600) throws {
        let value = try parser.parse(json)
        content = PushContent(
            messageID: Self.message, eventType: "order.shipped", eventIdentity: Self.identity,
            now: newYear)
        content.expiresAt = ttl.map { at($0) }
        content.collapseKey = value["collapse_key"]?.string
        content.unread = value["unread"]?.int64
        try content.take(
            notification: value["notification"], data: value["data"], apns: value["apns"],
            fcm: value["fcm"], webpush: value["webpush"], expo: value["expo"])
    }
}

let hexToken = Array(String(repeating: "ab", count: 32).utf8)

/// An address with the memory of its token.
struct Address {
    var gateway = Gateway.apns
    var environment = GatewayEnvironment.none
    var token: [UInt8]
    var topic: String?
    var platform: String?
    var kind = AddressKind.alert
    var broadcast: BroadcastTarget.Kind?
    var isInstallation = false

    func lend<Value>(_ body: (PushTarget) -> Value) -> Value {
        token.withUnsafeBytes { token in
            body(
                PushTarget(
                    gateway: gateway, environment: environment, token: token, apnsTopic: topic,
                    platform: platform, registeredAt: newYear, kind: kind, broadcast: broadcast,
                    isInstallation: isInstallation))
        }
    }
}

func apnsTarget(
    _ token: [UInt8] = hexToken, environment: GatewayEnvironment = .production,
    topic: String? = nil, kind: AddressKind = .alert
) -> Address {
    Address(environment: environment, token: token, topic: topic, kind: kind)
}

func fcmTarget(_ token: String = "abc:APA91b-x_y", platform: String? = "android") -> Address {
    Address(gateway: .fcm, token: Array(token.utf8), platform: platform)
}

let providerToken = ProviderToken(
    header: Array("bearer a.b.c".utf8), generation: 1, mintedAt: MonotonicTime(nanos: 0))
let accessToken = AccessToken(
    header: Array("Bearer ya29.x".utf8), generation: 1, fetchedAt: MonotonicTime(nanos: 0))

/// A request that was built, or what stood in its way.
struct Built {
    let rendering: Rendering
    let request = OutboundRequest()

    init(
        apns content: PushContent, to target: Address = apnsTarget(),
        with renderer: APNsRenderer = APNsRenderer(APNsSettings(topic: "com.example.app")),
        authorization: ProviderToken = providerToken
    ) {
        rendering = target.lend { [request] in
            renderer.render(content, to: $0, authorization: authorization, into: request)
        }
    }

    init(fcm content: PushContent, to target: Address = fcmTarget()) {
        let renderer = FCMRenderer(FCMSettings(projectID: "demo-project"))
        rendering = target.lend { [request] in
            renderer.render(content, to: $0, authorization: accessToken, into: request)
        }
    }

    subscript(header: String) -> String? { request.text(header) }

    var body: String { request.body.text }

    /// Asks the body's JSON, which must parse.
    func json<Value>(_ ask: (JSONValue) -> Value) throws -> Value {
        let parser = JSONParser()
        return ask(try parser.parse(request.body.bytes))
    }

    func isRejected(for reason: Reason) -> Bool {
        if case .tooLarge(let bytes, let limit) = rendering {
            return reason == .localPayloadTooLarge && bytes > limit
        }
        if case .rejected(reason, let detail) = rendering { return !detail.isEmpty }
        return false
    }

    var isMalformedToken: Bool {
        if case .malformedToken(let detail) = rendering {
            !detail.isEmpty && request.fields.isEmpty && body.isEmpty
        } else {
            false
        }
    }
}

/// What web push tests share: the receiver of RFC 8291, section 5, and a key.
enum Web {
    static let p256dh =
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
    static let auth = "BTBZMqHH6r4Tts7J_aSIgg"
    static let scalar = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"

    static func key(_ id: String = "v1") throws -> VAPIDKey {
        try VAPIDKey(
            id: id, text: try KeyPair.generate(for: .es256).privateKeyPEM, setting: "test")
    }

    static func subscription(
        _ endpoint: String = "https://push.example.net/send/abc?x=%2b"
    ) throws -> WebPushSubscription {
        WebPushSubscription(
            endpoint: try WebPushEndpoint(Array(endpoint.utf8)),
            keys: try SubscriptionKeys(p256dh: p256dh, auth: auth))
    }
}

func web(
    _ status: Int, _ body: String, of service: WebPushService = .other, sent: SentRequest? = nil,
    retryAfter: String? = nil, date: String? = nil, note: String? = nil,
    now: UnixMillis = newYear
) -> Verdict {
    Array(body.utf8).withUnsafeBytes {
        WebPushVerdict.judge(
            GatewayAnswer(
                status: status, body: $0, retryAfter: retryAfter, date: date, note: note, now: now),
            of: service, sent: sent ?? SentRequest(sentAt: now, registeredAt: UnixMillis(0)))
    }
}

func expo(
    _ status: Int, _ body: String, messages: Int = 1, sent: SentRequest? = nil,
    retryAfter: String? = nil, now: UnixMillis = newYear
) -> ExpoAnswer {
    Array(body.utf8).withUnsafeBytes {
        ExpoVerdict.judge(
            GatewayAnswer(status: status, body: $0, retryAfter: retryAfter, now: now),
            messages: messages,
            sent: { _ in sent ?? SentRequest(sentAt: now, registeredAt: UnixMillis(0)) })
    }
}
