import Base
import Config
import Crypto
import Gateways
import JSON
import Routes
import TokenIndex

@testable import Pipeline

/// What routes make of events at any of the gateways, with encrypted content left in the bodies.
struct Explained {
    private let explainer: EventExplainer

    /// When events are looked at.
    static let now = UnixMillis(1_767_225_600_000)

    init(routes: String) throws {
        let configuration = try Configuration.parse(
            text: """
                kafka: {brokers: "localhost:9092"}
                apps:
                  shop:
                    fcm: {service_account: "${KEY}"}
                    apns: {team_id: ABCDE12345, key_id: FGHIJ67890, key: "${KEY}", topic: a.b}
                    expo: {}
                    webpush: {subject: "mailto:o@example.com", vapid_keys: {a: {key: "${KEY}"}}}
                routes:

                """ + routes, environment: ["KEY": "k"])
        explainer = EventExplainer(
            configuration, try RouteTable.compile(configuration), projects: [:])
        explainer.hidesSealed = false
    }

    /// What becomes of an event whose user has no device.
    @discardableResult
    func explain(_ event: String) throws(EventCheck.Refusal) -> Explanation {
        try explainer.explain(Array(event.utf8), to: [], at: Self.now)
    }

    /// What a device of the user gets; `more` are members of its registration, a comma in front.
    func answer(
        to event: String, on gateway: Gateway, platform: String? = nil, _ more: String = ""
    ) throws -> Explanation.Answer {
        let explanation = try explainer.explain(
            Array(event.utf8), to: [try Self.device(at: gateway, platform, more)], at: Self.now)
        return explanation.targets[0].answer
    }

    private static func device(
        at gateway: Gateway, _ platform: String?, _ more: String
    ) throws -> DeviceAddress {
        let browser = try World.browser("b")
        let place =
            switch gateway {
            case .apns, .fcm: #""token":"\#(World.token(of: "i", gateway: gateway))""#
            case .expo: #""token":"ExponentPushToken[xxxxxxxxxxxxxxxxxxxxxx]""#
            case .webpush:
                #""endpoint":"https://fcm.googleapis.com/fcm/send/abc","keys":{"p256dh":"#
                    + #""\#(browser.p256dh)","auth":"\#(browser.auth)"}"#
            }
        let usual = [Gateway.fcm: "android", .webpush: "web"][gateway] ?? "ios"
        let record =
            #"{"v":1,"app":"shop","install_id":"i","user_id":"u1","gateway":"\#(gateway.rawValue)","#
            + #""platform":"\#(platform ?? usual)","environment":"#
            + #""\#(gateway == .apns ? "production" : "none")",\#(place)\#(more)}"#
        let decoded = try Array("shop/i".utf8).withUnsafeBytes { key in
            try Array(record.utf8).withUnsafeBytes { value in
                try RegistrationRecord.decode(
                    key: key, value: value, timestamp: 0, parser: JSONParser())
            }
        }
        guard case .registered(let address) = decoded else { throw RecordError.notAnObject }
        return address
    }
}

extension Explanation.Answer {
    /// The request, when there is one.
    var request: Explanation.Request? {
        if case .request(let request) = self { request } else { nil }
    }
}
