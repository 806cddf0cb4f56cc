// A running simulator with a team, a key, a project and an account, and the requests that a
// correct sender makes of it.

import Base
import Crypto
import JSON
import Simulator

final class Fixture {
    let time: ManualTime
    let simulator: Simulator
    let key: SimulatedAPNsKey

    static let token = String(repeating: "0123456789abcdef", count: 4)
    static let topic = "com.example.app"
    static let payload = #"{"aps":{"alert":{"title":"Hello"}},"bugle":{"id":"message-1"}}"#
    static let project = "demo-project"
    static let registration = "cXzY_-09abc:APA91bHexample"

    init(_ change: (inout SimulatorOptions) -> Void = { _ in }) throws {
        time = ManualTime(wall: SystemTime.shared.wall)
        var options = SimulatorOptions()
        options.time = time
        options.fcmIdleTimeout = nil
        change(&options)
        simulator = try Simulator(options)
        key = try simulator.makeAPNsKey()
    }

    deinit { simulator.stop() }

    /// Seconds since the epoch on the simulator's clock.
    var now: Int64 { time.wall.seconds }

    func run(
        _ service: SimulatedService, linger: Int = 0, _ requests: [NodeRequest]
    ) -> NodeTranscript {
        NodeClient.run(
            port: simulator.port(of: service), caPEM: simulator.authorityPEM, linger: linger,
            requests)
    }

    /// A provider token; every part can be spoilt.
    func providerToken(
        _ key: SimulatedAPNsKey? = nil, algorithm: String = "ES256", keyID: String? = nil,
        teamID: String? = nil, issuedAt: String? = nil
    ) throws -> String {
        let key = key ?? self.key
        let signer = try SigningKey(pem: key.privateKeyPEM, for: .es256, setting: "test")
        return try JWT.signed(
            header: "{\"alg\":\"\(algorithm)\",\"kid\":\"\(keyID ?? key.keyID)\"}",
            claims: "{\"iss\":\"\(teamID ?? key.teamID)\",\"iat\":\(issuedAt ?? "\(now)")}",
            with: signer)
    }

    /// A correct push, with fields replaced or, for nil, left out.
    func push(
        _ changes: [String: String?] = [:], token: String = Fixture.token,
        body: String = Fixture.payload, authorization: String
    ) -> NodeRequest {
        var fields: [String: String] = [
            "authorization": "bearer " + authorization, "apns-topic": Self.topic,
            "apns-push-type": "alert", "apns-priority": "10",
        ]
        for (name, value) in changes { fields[name] = value }
        return NodeRequest(
            path: "/3/device/" + token, fields: fields.sorted { $0.key < $1.key }, body: body)
    }
}

/// The `reason` in an APNs answer.
func reason(_ answer: NodeAnswer) -> String? {
    (try? JSONParser().parse(answer.body))?["reason"]?.string
}
