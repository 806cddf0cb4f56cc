// The rules of broadcast channels: their management and the pushes to them, asked by a client that
// is not ours.

import Base
import JSON
import Simulator
import Testing

@Suite struct `The simulated APNs channels` {
    private func request(
        _ fixture: Fixture, _ method: String, _ path: String, _ authorization: String,
        channel: String? = nil, body: String = ""
    ) -> NodeRequest {
        var request = NodeRequest(
            path: path, fields: [("authorization", "bearer " + authorization)], body: body)
        request.method = method
        if let channel { request.fields.append(("apns-channel-id", channel)) }
        return request
    }

    private static let channels = "/1/apps/\(Fixture.topic)/channels"
    private static let all = "/1/apps/\(Fixture.topic)/all-channels"
    private static let policy0 = #"{"message-storage-policy":0,"push-type":"LiveActivity"}"#

    @Test func `are created, listed, read and deleted`() throws {
        let fixture = try Fixture()
        let authorization = try fixture.providerToken()
        let created = try #require(
            fixture.run(
                .apnsChannels,
                [request(fixture, "POST", Self.channels, authorization, body: Self.policy0)]
            ).answers.first)
        #expect(created.status == 201 && created.body.isEmpty)
        let id = try #require(created.fields["apns-channel-id"])
        #expect(created.fields["apns-request-id"] != nil)
        let answers = fixture.run(
            .apnsChannels,
            [
                request(fixture, "GET", Self.all, authorization),
                request(fixture, "GET", Self.channels, authorization, channel: id),
                request(fixture, "DELETE", Self.channels, authorization, channel: id),
                request(fixture, "GET", Self.channels, authorization, channel: id),
                request(fixture, "DELETE", Self.channels, authorization, channel: id),
            ]
        ).answers
        #expect(answers.map(\.status) == [200, 200, 204, 400, 400])
        #expect(answers[0].body == #"{"channels":["\#(id)"]}"#)
        #expect(answers[1].body == Self.policy0)
        #expect(reason(answers[3]) == "ChannelNotRegistered")
        #expect(
            fixture.simulator.facts.channels(
                bundleID: Fixture.topic, environment: .production
            ).isEmpty)
    }

    @Test func `refuse what Apple refuses`() throws {
        let fixture = try Fixture()
        fixture.simulator.facts.setBundleIDs([Fixture.topic], teamID: fixture.key.teamID)
        let good = try fixture.providerToken()
        let rows: [(NodeRequest, Int, String)] = [
            (
                request(fixture, "POST", Self.channels, "x.y.z", body: Self.policy0), 403,
                "InvalidProviderToken"
            ),
            (request(fixture, "POST", Self.channels, good), 400, "BadRequestPayload"),
            (request(fixture, "POST", Self.channels, good, body: "{}"), 400, "BadRequestParams"),
            (
                request(
                    fixture, "POST", Self.channels, good,
                    body: #"{"message-storage-policy":2,"push-type":"LiveActivity"}"#), 400,
                "BadRequestParams"
            ),
            (
                request(
                    fixture, "POST", Self.channels, good,
                    body: #"{"message-storage-policy":1,"push-type":"alert"}"#), 400,
                "InvalidPushType"
            ),
            (request(fixture, "GET", Self.channels, good), 400, "MissingChannelId"),
            (request(fixture, "GET", Self.channels, good, channel: "a b"), 400, "BadChannelId"),
            (
                request(fixture, "GET", "/1/apps/com.example.other/all-channels", good), 403,
                "TopicMismatch"
            ),
            (
                request(
                    fixture, "GET", "/1/apps/\(Fixture.topic).push-type.liveactivity/all-channels",
                    good), 400, "TopicDisallowed"
            ),
            (request(fixture, "PUT", Self.channels, good, body: "{}"), 405, "MethodNotAllowed"),
            (request(fixture, "GET", "/1/apps", good), 404, "BadPath"),
        ]
        let answers = fixture.run(.apnsChannels, rows.map(\.0)).answers
        try #require(answers.count == rows.count)
        for (answer, row) in zip(answers, rows) {
            #expect(answer.status == row.1)
            #expect(reason(answer) == row.2)
        }
        fixture.simulator.facts.setBroadcasts(false, bundleID: Fixture.topic)
        let off = fixture.run(.apnsChannels, [request(fixture, "GET", Self.all, good)]).answers
        #expect(off.first.flatMap { reason($0) } == "FeatureNotEnabled")
    }

    @Test func `take pushes and refuse what Apple refuses`() throws {
        let fixture = try Fixture { $0.unknownTokens = .unregistered }
        fixture.simulator.facts.setBundleIDs([Fixture.topic], teamID: fixture.key.teamID)
        let good = try fixture.providerToken()
        func channel(_ policy: Int) throws -> String {
            try #require(
                fixture.simulator.facts.addChannel(
                    bundleID: Fixture.topic, environment: .production, storagePolicy: policy))
        }
        let (none, one) = (try channel(0), try channel(1))
        let body = #"{"aps":{"timestamp":1,"event":"update","content-state":{}}}"#
        func push(
            _ channel: String?, _ changes: [String: String?] = [:], app: String = Fixture.topic,
            body: String = body
        ) -> NodeRequest {
            var fields = [
                "authorization": "bearer " + good, "apns-push-type": "liveactivity",
                "apns-priority": "5", "apns-expiration": "0",
                "apns-request-id": "12345678-1234-4123-8123-123456789abc",
            ]
            fields["apns-channel-id"] = channel
            for (name, value) in changes { fields[name] = value }
            return NodeRequest(
                path: "/4/broadcasts/apps/" + app, fields: fields.sorted { $0.key < $1.key },
                body: body)
        }
        let large = #"{"aps":{},"k":"\#(String(repeating: "x", count: 5120))"}"#
        let rows: [(NodeRequest, Int, String?)] = [
            (push(one), 200, nil), (push(none), 200, nil),
            (push(one, ["apns-push-type": "LiveActivity"]), 200, nil),
            (push(one, ["apns-expiration": "1999999999"]), 200, nil),
            (push(none, ["apns-expiration": "1999999999"]), 400, "BadExpirationDate"),
            (push(one, ["apns-expiration": "soon"]), 400, "BadExpirationDate"),
            (push(nil), 400, "MissingChannelId"), (push("a b"), 400, "BadChannelId"),
            (push("dGVzdA=="), 400, "ChannelNotRegistered"),
            (push(one, ["apns-push-type": nil]), 400, "MissingPushType"),
            (push(one, ["apns-push-type": "alert"]), 400, "InvalidPushType"),
            (push(one, ["apns-priority": "3"]), 400, "BadPriority"),
            (push(one, ["apns-request-id": "x"]), 400, "BadMessageId"),
            (push(one, body: ""), 400, "PayloadEmpty"),
            (push(one, body: large), 413, "PayloadTooLarge"),
            (push(one, body: "x"), 400, "BadRequestPayload"),
            (push(one, app: "com.example.other"), 403, "TopicMismatch"),
            (push(one, app: Fixture.topic + ".push-type.liveactivity"), 400, "TopicDisallowed"),
            (push(one, ["authorization": nil]), 403, "MissingProviderToken"),
        ]
        let answers = fixture.run(.apnsProduction, rows.map(\.0)).answers
        try #require(answers.count == rows.count)
        for (answer, row) in zip(answers, rows) {
            #expect(answer.status == row.1)
            #expect(answer.status == 200 ? answer.body.isEmpty : reason(answer) == row.2)
            #expect(answer.fields["apns-request-id"] != nil && answer.fields["apns-id"] == nil)
        }
        // The other environment does not know the channel.
        let other = fixture.run(.apnsSandbox, [push(one)]).answers
        #expect(other.first.flatMap { reason($0) } == "ChannelNotRegistered")
    }
}
