// What a person said for all devices: read, kept, found with the addresses, forgotten; the same of
// every store.

import Base
import JSON
import RedisServer
import Testing

@testable import TokenIndex

private let ada = UserRecord(
    optOuts: ["news", "offers"], quietHours: QuietHours(from: "22:00", to: "07:30"),
    timeZone: "Europe/Vienna", locale: "de-AT", unread: 3)

private func said(_ record: UserRecord?, _ userID: String = "ada") -> IndexChange {
    .user(UserChange(app: "app", userID: userID, record: record))
}

extension IndexRig {
    fileprivate func record(_ userID: String = "ada") throws -> UserRecord? {
        guard case .addresses(_, _, _, let user) = try lookUp(userID) else {
            Issue.record("the look-up of \(userID) was not answered")
            return nil
        }
        return user
    }
}

@Suite struct `What a person said` {
    @Test func `comes with the addresses, and without any`() throws {
        try withEveryStore { rig throws in
            #expect(try rig.record() == nil)
            #expect(try rig.apply(said(ada)) == .applied)
            let alone = try #require(try rig.record())
            #expect(try rig.ids("ada") == [])
            #expect(alone == ada && alone.optOuts == ["news", "offers"])
            #expect(alone.quietHours?.text == "22:00-07:30" && alone.unread == 3)
            #expect(alone.timeZone == "Europe/Vienna" && alone.locale == "de-AT")
            #expect(alone.declines("offers") && !alone.declines("offer") && !alone.declines(""))
            try rig.apply(upload("i1", "ada", token: "t", at: 1))
            #expect(try rig.ids("ada") == ["app/i1"])
            #expect(try rig.record() == ada)
            #expect(try rig.record("bert") == nil)
            try rig.apply(gone("i1"))
            #expect(try rig.ids("ada") == [])
            #expect(try rig.record() == ada)
        }
    }

    @Test func `is what the last record in the topic says`() throws {
        try withEveryStore { rig throws in
            let news = UserRecord(optOuts: ["news"])
            #expect(try rig.apply(said(ada), at: place(5)) == .applied)
            #expect(try rig.apply(said(news), at: place(4)) == .outdated)
            #expect(try rig.record() == ada)
            #expect(try rig.apply(said(ada), at: place(5)) == .applied, "again, as after a crash")
            #expect(try rig.apply(said(news), at: place(6)) == .applied)
            #expect(try rig.record() == news)
            // The topic has got more partitions: time decides.
            #expect(try rig.apply(said(ada), at: place(9, partition: 1, time: 5)) == .outdated)
            #expect(
                try rig.apply(said(ada), at: place(0, partition: 1, time: 2_000_000)) == .applied)
            #expect(try rig.record() == ada)
        }
    }

    @Test func `is gone after a null, which older records do not undo`() throws {
        try withEveryStore { rig throws in
            try rig.apply(said(ada), at: place(5))
            #expect(try rig.apply(said(nil), at: place(7)) == .applied)
            #expect(try rig.record() == nil)
            #expect(try rig.apply(said(ada), at: place(6)) == .outdated)
            #expect(try rig.record() == nil)
            #expect(try rig.apply(said(ada), at: place(8)) == .applied)
            #expect(try rig.record() == ada)
        }
    }

    @Test func `is shown to operators and erased with the user`() throws {
        for store in try Stores.all() {
            let rig = try IndexRig(store)
            try rig.apply(said(ada), at: place(1))
            try rig.apply(upload("i1", "ada", token: "t", at: 1))
            let operations = try store.operations()
            #expect(try operations.userRecord(app: "app", userID: "ada") == ada, "\(store.name)")
            #expect(try operations.userRecord(app: "app", userID: "bert") == nil)
            #expect(try operations.reports(app: "app", userID: "ada").count == 1)
            try operations.erase(
                try operations.forgetting(app: "app", userID: "ada", at: UnixMillis(9)))
            #expect(try operations.userRecord(app: "app", userID: "ada") == nil, "\(store.name)")
            #expect(try rig.record() == nil)
            #expect(try rig.ids("ada") == [])
        }
    }

    @Test func `is compared with the topics, also of users without a device`() throws {
        let store = try RedisStore(server: try RedisServer())
        let rig = try IndexRig(store)
        let model = InMemoryTokenIndex()
        for user in ["same", "missing", "different"] {
            model.apply(said(ada, user), at: place(1))
            try rig.apply(said(ada, user), at: place(1))
        }
        let same = try RedisIndexOperator(store.index).verify(against: model)
        #expect(same.isEqual && same.users == 3)
        try rig.apply(said(nil, "missing"), at: place(2))
        try rig.apply(said(UserRecord(unread: 1), "different"), at: place(2))
        try rig.apply(said(ada, "ex:tra"), at: place(3))
        let found = try RedisIndexOperator(store.index).verify(against: model)
        #expect(
            found.differences.sorted { $0.userID < $1.userID } == [
                IndexDifference(app: "app", userID: "different", kind: .different),
                IndexDifference(app: "app", userID: "ex:tra", kind: .extra),
                IndexDifference(app: "app", userID: "missing", kind: .missing),
            ])
    }

    @Test func `survives losses as addresses do: what a store lost is asked for again`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let rig = try IndexRig(store)
        try rig.apply(said(ada), at: place(1))
        try rig.mark()
        _ = try Operator(server).run("FLUSHALL")
        try rig.turn { rig.assignments.count == 2 }
        #expect(rig.assignments[1].allSatisfy { $0.nextOffset == 0 })
        try rig.apply(said(ada), at: place(1))
        try rig.mark()
        #expect(try rig.record() == ada)
    }
}

@Suite struct `A record of push.users` {
    private func decode(_ value: String?, key: String = "shop/4711") throws -> UserChange {
        let parser = JSONParser()
        let value = value.map { Array($0.utf8) }
        return try Array(key.utf8).withUnsafeBytes { key in
            guard let value else {
                return try UserChange.decode(key: key, value: nil, parser: parser)
            }
            return try value.withUnsafeBytes {
                try UserChange.decode(key: key, value: $0, parser: parser)
            }
        }
    }

    @Test func `is read with all its fields, or with none`() throws {
        let change = try decode(
            """
            {"v":1,"app":"shop","user_id":4711,"opt_outs":["news"],"time_zone":"Europe/Vienna",
             "quiet_hours":{"from":"22:00","to":"07:30"},"locale":"de-AT","unread":7,"x":[]}
            """)
        #expect(change.key == "shop/4711" && change.userID == "4711")
        #expect(
            change.record
                == UserRecord(
                    optOuts: ["news"], quietHours: QuietHours(from: 1_320, to: 450),
                    timeZone: "Europe/Vienna", locale: "de-AT", unread: 7))
        let empty = try decode(
            #"{"v":1,"app":"shop","user_id":"4711","quiet_hours":null,"locale":null}"#)
        #expect(empty.record == UserRecord())
        #expect(empty.record?.optOuts == [] && empty.record?.quietHours == nil)
        let gone = try decode(nil, key: "shop/a/b")
        #expect(gone.record == nil && gone.app == "shop" && gone.userID == "a/b")
        let slashed = try decode(#"{"v":1,"app":"shop","user_id":"a/b"}"#, key: "shop/a/b")
        #expect(slashed.record != nil && slashed.userID == "a/b")
    }

    @Test func `equal times say nothing`() throws {
        let change = try decode(
            #"{"app":"shop","user_id":"4711","quiet_hours":{"from":"22:00","to":"22:00"}}"#)
        #expect(change.record != nil && change.record?.quietHours == nil)
    }

    @Test(arguments: [
        ("{}", "shop/4711", RecordError.missing(field: "app")),
        (#"{"app":"shop"}"#, "shop/4711", .missing(field: "user_id")),
        (#"{"app":"shop","user_id":"1"}"#, "shop/4711", .userKeyMismatch),
        (#"{"app":"s/h","user_id":"1"}"#, "s/h/1", nil),
        (#"{"app":"shop","user_id":"4711","unread":-1}"#, "shop/4711", nil),
        (#"{"app":"shop","user_id":"4711","unread":"3"}"#, "shop/4711", nil),
        (#"{"app":"shop","user_id":"4711","opt_outs":"news"}"#, "shop/4711", nil),
        (#"{"app":"shop","user_id":"4711","opt_outs":["a\u0000b"]}"#, "shop/4711", nil),
        (#"{"app":"shop","user_id":"4711","quiet_hours":"22-7"}"#, "shop/4711", nil),
        (
            #"{"app":"shop","user_id":"4711","quiet_hours":{"from":"24:00","to":"07:00"}}"#,
            "shop/4711", nil
        ),
        (
            #"{"app":"shop","user_id":"4711","quiet_hours":{"from":"7:00","to":"08:00"}}"#,
            "shop/4711", nil
        ),
        ("[]", "shop/4711", .notAnObject), ("nul", "shop/4711", nil),
    ]) func `is refused when it is none`(value: String, key: String, error: RecordError?) throws {
        #expect {
            _ = try decode(value, key: key)
        } throws: { thrown in
            guard let thrown = thrown as? RecordError else { return false }
            return error.map { $0 == thrown } ?? true
        }
    }

    @Test func `a null needs a user in its key`() {
        for key in ["shop", "/4711", "shop/", "shop/\(String(repeating: "x", count: 257))"] {
            #expect(throws: RecordError.badUserKey) { _ = try decode(nil, key: key) }
        }
    }
}
