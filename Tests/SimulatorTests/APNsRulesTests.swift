import Base
import JSON
import Simulator
import Testing

@Suite struct APNsRulesTests {
    @Test func `a correct push is accepted, its id comes back and it is recorded`() throws {
        let fixture = try Fixture()
        let authorization = try fixture.providerToken()
        let id = "12345678-1234-4123-8123-123456789abc"
        var request = fixture.push(
            ["apns-id": id, "apns-collapse-id": "c1", "apns-expiration": "0"],
            authorization: authorization)
        request.sensitive = ["authorization"]
        let answer = try #require(fixture.run(.apnsProduction, [request]).answers.first)
        #expect(answer.status == 200)
        #expect(answer.body.isEmpty)
        #expect(answer.fields["apns-id"] == id)
        #expect(answer.fields["apns-unique-id"] == nil)
        let entry = try #require(fixture.simulator.journal.entries.first)
        #expect(entry.token == Fixture.token)
        #expect(entry.messageID == "message-1")
        #expect(entry.apnsID == id)
        #expect(entry.collapseID == "c1")
        #expect(entry.neverIndexed == ["authorization"])
        #expect(fixture.simulator.journal.accepted(messageID: "message-1") == 1)
        #expect(fixture.simulator.journal.count(token: Fixture.token) == 1)
        #expect(fixture.simulator.journal.counters.violations.isEmpty)
    }
}
