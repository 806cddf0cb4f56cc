// Whose devices a file holds, before an event is explained for them.

import Base
import Foundation
import Testing
import TokenIndex

@testable import Bugle

@Suite struct `Devices out of a file` {
    private static let now = UnixMillis(1_767_225_600_000)

    private func withFile<Value>(
        _ text: String, _ body: (String) throws -> Value
    ) throws -> Value {
        let path = URL(filePath: NSTemporaryDirectory())
            .appending(path: "bugle-devices-\(UUID().uuidString).json")
        defer { try? FileManager.default.removeItem(at: path) }
        try Data(text.utf8).write(to: path)
        return try body(path.path)
    }

    private func device(
        _ install: String, app: String = "shop", user: String? = "ada", daysAgo: Int64 = 0
    ) -> String {
        let registered = Self.now.value - daysAgo * 86_400_000
        let user = user.map { #""user_id":"\#($0)","# } ?? ""
        return #"{"v":1,"app":"\#(app)","install_id":"\#(install)",\#(user)"platform":"ios","#
            + #""gateway":"apns","environment":"production","token":"\#(install)","#
            + #""registered_at":\#(registered)}"#
    }

    @Test func `are divided into those that the user's events reach and the others`() throws {
        let records = [
            device("a1"), device("b2", user: nil), device("c3", user: "eve"),
            device("d4", daysAgo: 91), device("e5", app: "other"),
        ]
        let (reached, notSent) = try withFile(records.joined(separator: "\n")) { path in
            DeviceList.divided(
                try DeviceList.read(path), app: "shop", userID: "ada", staleness: .standard,
                at: Self.now)
        }
        #expect(reached.map(\.installID) == ["a1"])
        #expect(
            notSent.map(\.obstacle) == [
                "nobody is logged in on the install", "it belongs to another user, eve",
                "not seen for 91 days", "it is a device of the app other",
            ])
        #expect(notSent.map(\.addressID).first == "shop/b2")
    }

    @Test func `are as new as the look when they do not say`() throws {
        let record =
            #"{"v":1,"app":"shop","install_id":"i","user_id":"ada","platform":"ios","#
            + #""gateway":"apns","environment":"production","token":"ab"}"#
        let (reached, _) = try withFile(record) { path in
            DeviceList.divided(
                try DeviceList.read(path), app: "shop", userID: "ada", staleness: .standard,
                at: SystemTime.shared.wall)
        }
        #expect(reached.count == 1)
    }

    @Test func `go with the record of their own user only`() throws {
        func read(_ record: String) throws -> UserRecord {
            try withFile(record) { try DeviceList.readUser($0, app: "shop", userID: "7") }
        }
        #expect(try read(#"{"v":1,"app":"shop","user_id":7,"locale":"de"}"#).locale == "de")
        for record in [
            #"{"v":1,"app":"shop","user_id":"8"}"#, #"{"v":1,"app":"other","user_id":"7"}"#,
            #"{"v":1,"user_id":"7"}"#,
        ] {
            let failure = #expect(throws: Failure.self) { try read(record) }
            #expect(failure?.lines.first?.contains("the event is for user 7 of shop") == true)
        }
    }
}
