// A dry run answers as a run would: for each install once, nothing for tokens that rest, and it says
// what an operator holds back.

import Base
import Config
import Gateways
import Routes
import Testing

@testable import Pipeline
@testable import TokenIndex

@Suite struct `An explanation` {
    private static let now = UnixMillis(1_767_225_600_000)
    private static let event = Array(
        #"{"id":"e","type":"chat.message","source":"chat","user_id":"u1","notification":{"title":"t"}}"#
            .utf8)

    private func explain(
        _ addresses: [DeviceAddress], levers: Levers = .none, preference: String = ""
    ) throws -> Explanation {
        let configuration = try Configuration.parse(
            text: """
                kafka: {brokers: "localhost:9092"}
                \(preference)
                apps:
                  shop:
                    apns: {team_id: ABCDE12345, key_id: FGHIJ67890, key: "${KEY}", topic: a.b}
                    expo: {}

                """, environment: ["KEY": "k"])
        let explainer = EventExplainer(
            configuration, try RouteTable.compile(configuration), projects: [:])
        return try explainer.explain(Self.event, to: addresses, levers: levers, at: Self.now)
    }

    private func address(
        _ install: String, _ gateway: Gateway = .apns, instance: String? = nil
    ) throws -> DeviceAddress {
        let id = try #require(
            AddressID(app: "shop", installID: install, kind: "alert", instance: instance))
        let token =
            gateway == .expo
            ? "ExponentPushToken[xxxxxxxxxxxxxxxxxxxxxx]"
            : World.token(of: install, gateway: gateway)
        return DeviceAddress(
            DeviceFields(
                id: id, userID: "u1", platform: "ios", gateway: gateway,
                environment: gateway == .apns ? .production : .none, token: token,
                registeredAt: Self.now))
    }

    @Test func `sends one push to an install, by the preferred gateway that is configured`() throws
    {
        let addresses = [
            try address("phone"), try address("phone", .expo, instance: "expo"),
            try address("phone", .fcm, instance: "fcm"), try address("pad"),
        ]
        let usual = try explain(addresses)
        #expect(usual.targets.map(\.gateway) == [.apns, .apns])
        #expect(usual.targets.allSatisfy { $0.answer.request != nil })
        #expect(
            usual.notPreferred.map(\.addressID) == [
                "shop/phone/alert/expo", "shop/phone/alert/fcm",
            ])
        #expect(usual.notPreferred.allSatisfy { $0.reachedThrough == "shop/phone" })
        #expect(usual.passedOver.isEmpty)
        let other = try explain(
            addresses, preference: "index: {gateway_preference: [fcm, expo, apns]}")
        #expect(other.targets.map(\.gateway) == [.expo, .apns])
    }

    @Test func `refuses an address of the event's own that its app does not list`() throws {
        let configuration = try Configuration.parse(
            text: """
                kafka: {brokers: "localhost:9092"}
                apps: {shop: {expo: {}, image_hosts: cdn.example.com}}

                """, environment: [:])
        let explainer = EventExplainer(
            configuration, try RouteTable.compile(configuration), projects: [:])
        for (host, code) in [("cdn.example.com", nil), ("evil.example", "content_error")] {
            let event =
                #"{"type":"t","user_id":"u1","notification":{"title":"x","#
                + #""image":"https://\#(host)/a.png"}}"#
            let answer = Result<Explanation, EventCheck.Refusal> {
                () throws(EventCheck.Refusal) in
                try explainer.explain(Array(event.utf8), to: [], at: Self.now)
            }
            if case .failure(let refusal) = answer {
                #expect(refusal.code.rawValue == code)
                #expect(refusal.reason.contains("image_hosts"))
            } else {
                #expect(code == nil)
            }
        }
    }

    @Test func `sends nothing to a token that is quarantined`() throws {
        let explanation = try explain([try address("phone").quarantined, try address("pad")])
        guard case .suppressed(let reason) = explanation.targets[0].answer else {
            Issue.record("a quarantined token is sent to")
            return
        }
        #expect(reason == "quarantined")
        #expect(explanation.targets[1].answer.request != nil)
    }

    @Test(
        arguments: [
            (LeverKind.type, "chat.*", true), (.type, "mail", false), (.source, "chat", true),
            (.source, "mail", false), (.app, "shop", true), (.app, "bank", false),
            (.gateway, "apns", true), (.gateway, "apns/production", true),
            (.gateway, "apns/sandbox", false), (.gateway, "expo", false),
        ] as [(LeverKind, String, Bool)])
    func `tells what an operator holds back`(kind: LeverKind, value: String, isHeld: Bool) throws {
        let lever = try #require(Lever(kind, value))
        let levers = Levers(paused: [lever], skips: [], loosenedAt: UnixMillis(0))
        let explanation = try explain([try address("phone")], levers: levers)
        #expect(explanation.obstacles.contains { $0.contains("paused by an operator") } == isHeld)
    }
}
