// The documented rules of Expo's push service, asked by a client that is not ours.

import Base
import JSON
import Simulator
import Testing

@Suite(.serialized) struct `The simulated Expo` {
    private static let token = "ExponentPushToken[abc]"

    private func post(
        _ body: String, to path: String = "send", authorization: String? = nil
    ) -> NodeRequest {
        var fields = [("content-type", "application/json")]
        if let authorization { fields.append(("authorization", authorization)) }
        return NodeRequest(path: "/--/api/v2/push/\(path)", fields: fields, body: body)
    }

    private func answers(
        _ fixture: Fixture, _ requests: NodeRequest...
    ) throws -> [(Int, JSONValue)] {
        let answers = fixture.run(.expo, requests).answers
        return try answers.map { answer in
            (answer.status ?? 0, try JSONParser().parse(answer.body))
        }
    }

    private func code(_ answer: JSONValue) -> String? {
        var code: String?
        answer["errors"]?.forEachElement { code = $0["code"]?.string }
        return code
    }

    private func tickets(_ answer: JSONValue) -> [String] {
        var tickets: [String] = []
        answer["data"]?.forEachElement { ticket in
            tickets.append(ticket["details"]?["error"]?.string ?? ticket["status"]?.string ?? "")
        }
        return tickets
    }

    @Test func `gives a ticket for each message, in their order`() throws {
        let fixture = try Fixture()
        let body =
            #"[{"to":"\#(Self.token)","title":"a"},{"to":"ExponentPushToken[DeviceNotRegistered-1]"},"#
            + #"{"to":"\#(Self.token)","data":{"bugle":{"id":"m3"}}}]"#
        let answer = try #require(try answers(fixture, post(body)).first)
        #expect(answer.0 == 200)
        #expect(tickets(answer.1) == ["ok", "DeviceNotRegistered", "ok"])
        let journal = fixture.simulator.journal
        #expect(journal.accepted(token: Self.token) == 2)
        #expect(journal.accepted(messageID: "m3") == 1)
        #expect(journal.count(.expo, status: 200, reason: "DeviceNotRegistered") == 1)
    }

    @Test func `refuses a request as a whole for one message of a wrong form`() throws {
        let fixture = try Fixture()
        for bad in [
            #"{"title":"nobody"}"#, #"{"to":"\#(Self.token)","unheard":1}"#,
            #"{"to":"\#(Self.token)","ttl":"soon"}"#, #"{"to":"\#(Self.token)","title":7}"#,
            #"{"to":"\#(Self.token)","priority":"urgent"}"#,
            #"{"to":[]}"#, #"{"to":[7]}"#, #"{"to":"\#(Self.token)","body":7}"#,
            #"{"to":"\#(Self.token)","data":"text"}"#, #"{"to":"\#(Self.token)","sound":7}"#,
            #"{"to":"\#(Self.token)","sound":{"critical":1,"name":"a"}}"#,
            #"{"to":"\#(Self.token)","sound":{"name":7}}"#,
            #"{"to":"\#(Self.token)","sound":{"volume":"1"}}"#,
            #"{"to":"\#(Self.token)","sound":{"loud":true}}"#,
            #"{"to":"\#(Self.token)","badge":"1"}"#,
            #"{"to":"\#(Self.token)","badge":-1}"#,
            #"{"to":"\#(Self.token)","interruptionLevel":"loud"}"#,
            #"{"to":"\#(Self.token)","relevanceScore":2}"#,
            #"{"to":"\#(Self.token)","mutableContent":1}"#,
            #"{"to":"\#(Self.token)","expiration":"later"}"#,
            #"{"to":"\#(Self.token)","richContent":"https://a/b"}"#,
        ] {
            let body = #"[{"to":"\#(Self.token)"},\#(bad)]"#
            let answer = try #require(try answers(fixture, post(body)).first)
            #expect(answer.0 == 400 && code(answer.1) == "VALIDATION_ERROR", "\(bad)")
        }
        let many =
            "["
            + Array(repeating: #"{"to":"\#(Self.token)"}"#, count: 101)
            .joined(separator: ",") + "]"
        let answer = try #require(try answers(fixture, post(many)).first)
        #expect(answer.0 == 400 && code(answer.1) == "PUSH_TOO_MANY_NOTIFICATIONS")
        #expect(fixture.simulator.journal.counters.accepted == 0)
    }

    @Test func `takes every documented field`() throws {
        let fixture = try Fixture()
        let message =
            #"{"to":"\#(Self.token)","title":"t","subtitle":"s","body":"b","data":{"a":[1]},"#
            + #""ttl":60,"expiration":1767225600,"priority":"default","sound":null,"badge":0,"#
            + #""interruptionLevel":"time-sensitive","targetContentId":"x","relevanceScore":0.5,"#
            + #""filterCriteria":"f","threadId":"t","contentAvailable":true,"#
            + #""mutableContent":false,"categoryId":"c","collapseId":"k","tag":"g","#
            + #""channelId":"n","icon":"i","richContent":{"image":"https://a/b"}}"#
        let answer = try #require(try answers(fixture, post("[\(message)]")).first)
        #expect(answer.0 == 200 && tickets(answer.1) == ["ok"])
        for sound in [
            #""default""#, #"{"critical":true,"name":"a","volume":0.5}"#,
            #"{"critical":false,"name":null}"#, "{}",
        ] {
            let message = #"{"to":"\#(Self.token)","sound":\#(sound)}"#
            let answer = try #require(try answers(fixture, post("[\(message)]")).first)
            #expect(answer.0 == 200 && tickets(answer.1) == ["ok"], "\(sound)")
        }
        #expect(
            fixture.run(.expo, [post("[\(message)]")]).answers.first?.fields["date"] != nil)
    }

    @Test func `counts recipients, and all texts of a message`() throws {
        let fixture = try Fixture()
        func list(_ count: Int) -> String {
            Array(repeating: "\"\(Self.token)\"", count: count).joined(separator: ",")
        }
        func message(_ count: Int) -> String { #"{"to":[\#(list(count))],"title":"t"}"# }
        let found = try answers(
            fixture, post("[\(message(60)),\(message(40))]"),
            post("[\(message(60)),\(message(41))]"))
        #expect(found[0].0 == 200 && tickets(found[0].1).count == 100)
        #expect(found[1].0 == 400 && code(found[1].1) == "PUSH_TOO_MANY_NOTIFICATIONS")
        // The texts count together with the data, and with what Expo writes around them.
        func sized(_ count: Int) -> String {
            let text = String(repeating: "x", count: count)
            return #"[{"to":"\#(Self.token)","title":"ab","body":"\#(text)","data":{}}]"#
        }
        let sizes = try answers(fixture, post(sized(3892)), post(sized(3893)))
        #expect(sizes.map { tickets($0.1) } == [["ok"], ["MessageTooBig"]])
        // An image's address does, too.
        func pictured(_ count: Int) -> String {
            let text = String(repeating: "x", count: count)
            return
                #"[{"to":"\#(Self.token)","body":"\#(text)","richContent":{"image":"https://i"}}]"#
        }
        let pictures = try answers(fixture, post(pictured(3887)), post(pictured(3888)))
        #expect(pictures.map { tickets($0.1) } == [["ok"], ["MessageTooBig"]])
    }

    @Test func `holds a project to 600 in a second`() throws {
        let fixture = try Fixture()
        func hundred(_ project: String) -> NodeRequest {
            let message = #"{"to":"ExponentPushToken[project-\#(project)-1]"}"#
            return post("[" + Array(repeating: message, count: 100).joined(separator: ",") + "]")
        }
        let found = fixture.run(.expo, Array(repeating: hundred("a"), count: 7)).answers
        #expect(found.map(\.status) == [200, 200, 200, 200, 200, 200, 429])
        let refusal = try JSONParser().parse(found[6].body)
        #expect(code(refusal) == "TOO_MANY_REQUESTS")
        #expect(fixture.run(.expo, [hundred("b")]).answers.map(\.status) == [200])
        fixture.time.advance(by: .milliseconds(500))
        fixture.simulator.wake()
        #expect(
            fixture.run(.expo, Array(repeating: hundred("a"), count: 4)).answers.map(\.status)
                == [200, 200, 200, 429])
    }

    @Test func `asks for the access token and for one project`() throws {
        let fixture = try Fixture()
        fixture.simulator.facts.expoAccessToken = "secret"
        fixture.simulator.facts.setExpoToken("ExponentPushToken[other]", project: "@other/app")
        let one = #"[{"to":"\#(Self.token)"}]"#
        let two = #"[{"to":"\#(Self.token)"},{"to":"ExponentPushToken[other]"}]"#
        let found = try answers(
            fixture, post(one), post(one, authorization: "Bearer wrong"),
            post(one, authorization: "Bearer secret"), post(two, authorization: "Bearer secret"))
        #expect(found.map { $0.0 } == [401, 401, 200, 400])
        #expect(code(found[0].1) == "UNAUTHORIZED")
        #expect(code(found[3].1) == "PUSH_TOO_MANY_EXPERIENCE_IDS")
    }

    @Test func `has receipts for tickets that were asked for often enough`() throws {
        let fixture = try Fixture()
        let body =
            #"[{"to":"\#(Self.token)"},{"to":"ExponentPushToken[late-1]"},"#
            + #"{"to":"ExponentPushToken[receipt-MismatchSenderId-1]"}]"#
        let sent = try #require(try answers(fixture, post(body)).first)
        var ids: [String] = []
        sent.1["data"]?.forEachElement { ids.append($0["id"]?.string ?? "") }
        let list = (ids + ["unknown"]).map { "\"\($0)\"" }.joined(separator: ",")
        let question = post("{\"ids\":[\(list)]}", to: "getReceipts")
        let found = try answers(fixture, question, question)
        #expect(found[0].1["data"]?.count == 2 && found[1].1["data"]?.count == 3)
        let receipts = try #require(found[1].1["data"])
        func status(_ id: String) -> String? {
            var status: String?
            receipts.forEachMember { name, receipt in
                if name.elementsEqual(id.utf8) {
                    status = receipt["details"]?["error"]?.string ?? receipt["status"]?.string
                }
            }
            return status
        }
        #expect(ids.map { status($0) } == ["ok", "ok", "MismatchSenderId"])
        #expect(fixture.simulator.journal.counters.receiptRequests == 2)
        fixture.time.advance(by: .hours(25))
        let late = try #require(try answers(fixture, question).first)
        #expect(late.1["data"]?.count == 0)
    }
}
