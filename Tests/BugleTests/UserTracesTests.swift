import Base
import JSON
import Testing
import TokenIndex

@testable import Bugle

/// Both topics of an index, as texts.
private final class Topics {
    private(set) var records: [IndexRecord] = []
    private let decoder = RegistrationDecoder()
    private let invalidations = InvalidationDecoder()

    /// Writes a record of `push.devices`.
    func device(_ key: String, _ value: String?, partition: Int32 = 0) throws {
        let key = Array(key.utf8)
        let decoded = try lend(key, value) { key, value in
            try decoder.decode(key: key, value: value, timestamp: Int64(records.count))
        }
        add(.registration(decoded), .devices, key, partition)
    }

    /// Writes a record of `push.invalidations`.
    func verdict(_ key: String, _ value: String?) throws {
        let key = Array(key.utf8)
        let record = try lend(key, value) { key, value in
            try invalidations.decode(key: key, value: value)
        }
        add(.invalidation(record), .invalidations, key, 0)
    }

    /// Writes a record of `push.users`.
    func user(_ key: String, _ value: String?, partition: Int32 = 0) throws {
        let key = Array(key.utf8)
        let change = try lend(key, value) { key, value in
            try UserChange.decode(key: key, value: value, parser: JSONParser())
        }
        add(.user(change), .users, key, partition)
    }

    /// Reads on from a record, as `index forget` does when its question was answered.
    func readOn(_ traces: inout UserTraces, from place: Int) {
        let known = traces.installs
        for record in records[place...] { traces.search(record) }
        let isNew = traces.installs != known
        if isNew { traces.collectAnew() }
        for record in records[(isNew ? 0 : place)...] { traces.collect(record) }
    }

    func traces(of userID: String) -> UserTraces {
        var traces = UserTraces(app: "shop", userID: userID)
        for record in records { traces.search(record) }
        for record in records { traces.collect(record) }
        return traces
    }

    private func lend<Value>(
        _ key: [UInt8], _ value: String?,
        _ body: (UnsafeRawBufferPointer, UnsafeRawBufferPointer?) throws -> Value
    ) throws -> Value {
        try key.withUnsafeBytes { key in
            guard let value else { return try body(key, nil) }
            return try Array(value.utf8).withUnsafeBytes { try body(key, $0) }
        }
    }

    private func add(
        _ content: IndexRecord.Content, _ topic: IndexTopic, _ key: [UInt8], _ partition: Int32
    ) {
        let place = Int64(records.count)
        records.append(
            IndexRecord(
                content: content,
                position: TopicPosition(partition: partition, offset: place, timestamp: place),
                topic: topic, key: key))
    }
}

private func row(_ install: String, _ user: String?, app: String = "shop", at time: Int = 1)
    -> String
{
    """
    {"app":"\(app)","install_id":"\(install)","user_id":\(user.map { "\"\($0)\"" } ?? "null"),
     "platform":"android","gateway":"fcm","token":"t-\(install)","registered_at":\(time)}
    """
}

private func update(_ before: String, _ after: String) -> String {
    #"{"op":"u","before":\#(before),"after":\#(after)}"#
}

private func judged(_ install: String, _ user: String?) -> String {
    """
    {"app":"shop","install_id":"\(install)","verdict":"invalidate","reason":"x","as_of":9,
     "user_id":\(user.map { "\"\($0)\"" } ?? "null"),"token":"secret","event_id":"e"}
    """
}

extension UserTraces {
    fileprivate var nullKeys: [String] {
        nulls(owned).map { "\($0.partition):" + String(decoding: $0.bytes, as: UTF8.self) }
    }
}

@Suite struct `Traces of a user` {
    @Test func `are the records under whatever key they were written`() throws {
        let topics = Topics()
        try topics.device("shop/i1", row("i1", "ada"))
        try topics.device(#"{"id":2}"#, row("i2", "ada"), partition: 3)
        try topics.device("shop/i3", row("i3", "grace"))
        try topics.device("web/i1", row("i1", "ada", app: "web"))
        let traces = topics.traces(of: "ada")
        #expect(traces.owned.addresses.map(\.id.text) == ["shop/i1", "shop/i2"])
        #expect(traces.nullKeys == ["0:shop/i1", #"3:{"id":2}"#])
        #expect(traces.owned.invalidations.map(\.addressID.text) == ["shop/i1", "shop/i2"])
        #expect(traces.owned.invalidations.allSatisfy { $0.userID == nil && $0.token == nil })
        #expect(topics.traces(of: "nobody").nullKeys == [])
    }

    @Test func `are gone where a null or another user came later`() throws {
        let topics = Topics()
        try topics.device("shop/i1", row("i1", "ada"))
        try topics.device("shop/i1", nil)
        try topics.device("shop/i2", row("i2", "ada"))
        try topics.device("shop/i2", row("i2", "grace", at: 2))
        let traces = topics.traces(of: "ada")
        #expect(traces.owned.addresses.isEmpty && traces.nullKeys == [])
        #expect(traces.kept(traces.owned) == 0)
    }

    @Test func `are looked for again in what came since`() throws {
        let topics = Topics()
        try topics.device("shop/i1", row("i1", "ada"))
        try topics.device("shop/i2", row("i2", "ada"))
        try topics.device("shop/i3", row("i3", "grace"))
        try topics.verdict("shop/i3", judged("i3", "grace"))
        var traces = topics.traces(of: "ada")
        #expect(traces.nullKeys == ["0:shop/i1", "0:shop/i2"])
        let place = topics.records.count
        try topics.device("shop/i1", row("i1", "grace", at: 2))
        topics.readOn(&traces, from: place)
        #expect(traces.nullKeys == ["0:shop/i2"])
        #expect(traces.owned.addresses.map(\.id.text) == ["shop/i2"])
        // A device that was somebody else's, and of which the topics hold more.
        let next = topics.records.count
        try topics.device("shop/i3", row("i3", "ada", at: 3))
        topics.readOn(&traces, from: next)
        #expect(traces.nullKeys == ["0:shop/i2", "0:shop/i3"])
        #expect(traces.owned.invalidations.map(\.addressID.text) == ["shop/i2", "shop/i3"])
    }

    @Test func `stay in a row that another user has and go from one that nobody has`() throws {
        let topics = Topics()
        try topics.device(#"{"id":1}"#, update(row("i1", "ada"), row("i1", "grace")))
        try topics.device(#"{"id":2}"#, update(row("i2", "ada"), row("i2", nil)))
        try topics.device(#"{"id":3}"#, #"{"op":"d","before":\#(row("i3", "ada"))}"#)
        let traces = topics.traces(of: "ada")
        #expect(traces.nullKeys == [#"0:{"id":2}"#, #"0:{"id":3}"#])
        #expect(traces.kept(traces.owned) == 1)
    }

    @Test func `in a verdict on another's address go without the verdict`() throws {
        let topics = Topics()
        try topics.device("shop/i1", row("i1", "grace", at: 20))
        try topics.verdict("shop/i1", judged("i1", "ada"))
        try topics.device("shop/i2", row("i2", "ada"))
        try topics.verdict("shop/i2", judged("i2", "ada"))
        try topics.verdict("shop/i3", judged("i3", "grace"))
        let traces = topics.traces(of: "ada")
        let anonymous = traces.anonymous(traces.owned)
        #expect(anonymous.map(\.addressID.text) == ["shop/i1"])
        #expect(anonymous.allSatisfy { $0.userID == nil && $0.token == nil && $0.eventID == nil })
        #expect(anonymous.allSatisfy { $0.verdict == .invalidate && $0.asOf == UnixMillis(9) })
        #expect(traces.owned.invalidations.map(\.addressID.text) == ["shop/i2"])
    }

    @Test func `are forgotten up to a registration from a clock that is ahead`() throws {
        let topics = Topics()
        let ahead = Int(SystemTime.shared.wall.value) + 3_600_000
        try topics.device("shop/i1", row("i1", "ada", at: ahead))
        #expect(topics.traces(of: "ada").owned.asOf == UnixMillis(Int64(ahead)))
    }

    @Test func `a user's own record is nulled where it stands, once`() throws {
        let topics = Topics()
        let ada = #"{"app":"shop","user_id":"ada","opt_outs":["news"]}"#
        try topics.user("shop/ada", ada, partition: 2)
        try topics.user("shop/bert", #"{"app":"shop","user_id":"bert"}"#)
        try topics.user("other/ada", #"{"app":"other","user_id":"ada"}"#)
        let key = UserTraces.Key(partition: 2, bytes: Array("shop/ada".utf8))
        #expect(topics.traces(of: "ada").userNulls == [key])
        try topics.user("shop/ada", nil, partition: 2)
        #expect(topics.traces(of: "ada").userNulls == [])
        try topics.user("shop/ada", ada, partition: 2)
        #expect(topics.traces(of: "ada").userNulls == [key])
    }
}
