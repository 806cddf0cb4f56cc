import Base
import Foundation
import JSON
import Testing

@testable import TokenIndex

private func registration(
    _ key: String, _ value: String?, timestamp: Int64 = 5
) throws(RecordError) -> RegistrationRecord {
    let key = Array(key.utf8)
    let value = value.map { Array($0.utf8) }
    let result = key.withUnsafeBytes { key -> Result<RegistrationRecord, RecordError> in
        let decode = {
            (value: UnsafeRawBufferPointer?) -> Result<RegistrationRecord, RecordError> in
            do throws(RecordError) {
                return .success(
                    try RegistrationRecord.decode(
                        key: key, value: value, timestamp: timestamp, parser: JSONParser()))
            } catch { return .failure(error) }
        }
        return value.map { $0.withUnsafeBytes { decode($0) } } ?? decode(nil)
    }
    return try result.get()
}

private func address(_ key: String, _ value: String) throws -> DeviceAddress {
    guard case .registered(let address) = try registration(key, value) else {
        throw RecordError.noKey
    }
    return address
}

@Suite struct `Records of devices` {
    @Test func `native record with everything`() throws {
        let address = try address(
            "shop/i-1/voip",
            """
            {"v":1,"app":"shop","install_id":"i-1","kind":"voip","user_id":42,"platform":"ios",
             "gateway":"apns","environment":"sandbox","token":" ABCDEF01 ","apns_topic":"a.b",
             "version":7,"registered_at":1700000000000,"last_seen_at":1700000000001,
             "permission":"granted","locale":"de-AT","time_zone":"Europe/Vienna",
             "app_version":"1.2","muted_channels":["x","y"],"opt_outs":[],"capabilities":["la"],
             "public_keys":[{"kid":"k"}],"unheard_of":{"a":[1]}}
            """)
        #expect(address.id == AddressID(app: "shop", installID: "i-1", kind: "voip"))
        #expect(address.userID == "42" && address.token == "abcdef01")
        #expect(address.environment == .sandbox && address.permission == .granted)
        #expect(address.registeredAt == UnixMillis(1_700_000_000_000) && address.version == 7)
        #expect(address.lastSeenAt == UnixMillis(1_700_000_000_001) && address.expiresAt == nil)
        #expect(address.mutedChannels == ["x", "y"] && address.optOuts == [])
        #expect(address.capabilities == ["la"] && address.publicKeys == #"[{"kid":"k"}]"#)
        #expect(address.locale == "de-AT" && address.timeZone == "Europe/Vienna")
        #expect(address.tokenHash.count == 64 && address.tokenHash.hasPrefix(address.tokenName))
    }

    @Test func `web push subscription in either base64 alphabet`() throws {
        let plain =
            "BCVxsr7N/eNgVRqvHtD0zTZsEc6+VV+JvLexhqUzORcxaOzi6+AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4="
        let safe =
            "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
        for (key, auth) in [(plain, "BTBZMqHH6r4Tts7J/aSIgg=="), (safe, "BTBZMqHH6r4Tts7J_aSIgg")] {
            let address = try address(
                "web/b",
                """
                {"app":"web","install_id":"b","user_id":"u","platform":"web","gateway":"webpush",
                 "environment":"none","endpoint":"https://push.example/x","vapid_key_id":"v1",
                 "keys":{"p256dh":"\(key)","auth":"\(auth)"},"expires_at":9}
                """)
            #expect(address.p256dh == safe && address.auth == "BTBZMqHH6r4Tts7J_aSIgg")
            #expect(address.token == "https://push.example/x" && address.vapidKeyID == "v1")
            #expect(address.expiresAt == UnixMillis(9) && address.registeredAt == UnixMillis(5))
        }
    }

    @Test func `null value is an address that is gone`() throws {
        guard case .gone(let id) = try registration("shop/i-1/la_update/x/y", nil) else {
            Issue.record("not gone")
            return
        }
        #expect(id.kind == "la_update" && id.instance == "x/y")
    }

    @Test(arguments: [
        ("", "{}", "the record has no key"),
        ("shop", "null", "the value is not a JSON object"),
        ("shop/i", "{", "the value is not JSON"),
        ("shop/i", "{}", "the field \"app\" is missing"),
        ("shop/i", #"{"app":"shop","install_id":5}"#, "the field \"install_id\" is not a text"),
        (
            "shop/j", #"{"app":"shop","install_id":"i","gateway":"fcm","token":"t"}"#,
            "the key is not the address id"
        ),
        (
            "shop/i", #"{"app":"shop","install_id":"i","gateway":"adm","token":"t"}"#,
            "the value of \"gateway\" is not known"
        ),
        (
            "shop/i", #"{"app":"shop","install_id":"i","gateway":"fcm"}"#,
            "the field \"token\" is missing"
        ),
        (
            "shop/i", #"{"app":"shop","install_id":"i","gateway":"apns","token":"ab"}"#,
            "the field \"environment\" is not production or sandbox"
        ),
        (
            "shop/i", #"{"app":"shop","install_id":"i","gateway":"fcm","token":"t","version":-1}"#,
            "the field \"version\" is not a whole number"
        ),
        (
            "shop/i",
            #"{"app":"shop","install_id":"i","gateway":"webpush","endpoint":"https://x","keys":{"p256dh":"AA","auth":"AA"}}"#,
            "the field \"keys.p256dh\" is not base64 of 65 bytes"
        ),
    ]) func `malformed record is an error that names the field`(
        key: String, value: String, message: String
    ) {
        do throws(RecordError) {
            _ = try registration(key, value)
            Issue.record("taken")
        } catch {
            #expect(error.description.hasPrefix(message), "\(error)")
        }
    }

    /// Producers keep to the schema. The reader takes what it can make sense of: a token in a
    /// foreign form costs its own push later, an environment counts at APNs only, a record without
    /// `v` is of version 1.
    @Test func `published examples are read, and most that break a rule are refused`() throws {
        let folder = URL(filePath: #filePath).deletingLastPathComponent()
            .deletingLastPathComponent().deletingLastPathComponent()
            .appending(path: "topics/examples/push.devices")
        var taken: Set<String> = []
        for file in try FileManager.default.contentsOfDirectory(
            at: folder, includingPropertiesForKeys: nil)
        {
            let value = try String(contentsOf: file, encoding: .utf8)
            let parser = JSONParser()
            let root = try parser.parse(value)
            func text(_ name: String) -> String? { root[name]?.string }
            let kind = text("kind") ?? "alert"
            let id = [
                text("app"), text("install_id"), kind == "alert" ? nil : kind, text("instance"),
            ]
            if (try? registration(id.compactMap(\.self).joined(separator: "/"), value)) != nil {
                taken.insert(file.deletingPathExtension().lastPathComponent)
            }
        }
        #expect(
            taken == [
                "apns", "apns-sandbox", "everything", "fcm", "signed-out", "webpush",
                "invalid-apns-token-not-hex", "invalid-apns-token-odd", "invalid-fcm-in-sandbox",
                "invalid-no-version-of-shape",
            ])
    }

    @Test func `records of another version are skipped, and rows have columns of any name`() throws
    {
        let record = #"{"v":2,"app":"shop","install_id":"i","gateway":"fcm","token":"t"}"#
        #expect(throws: RecordError.unknown(field: "v")) { try registration("shop/i", record) }
        let key = Array("shop/i".utf8)
        let bytes = Array(record.utf8)
        key.withUnsafeBytes { key in
            bytes.withUnsafeBytes { value in
                #expect(throws: RecordError.unknown(field: "v")) {
                    try RegistrationDecoder().decode(key: key, value: value, timestamp: 5)
                }
                #expect(throws: RecordError.unknown(field: "v")) {
                    try InvalidationDecoder().decode(key: key, value: value)
                }
            }
        }
        let row = Array(#"{"after":\#(record),"op":"c"}"#.utf8)
        let decoded = try row.withUnsafeBytes { value in
            try RegistrationDecoder().decode(key: nil, value: value, timestamp: 5)
        }
        #expect(decoded.records.count == 1)
    }

    @Test func `only APNs has environments`() throws {
        let address = try address(
            "shop/i",
            #"{"app":"shop","install_id":"i","gateway":"fcm","environment":"sandbox","token":"t"}"#)
        #expect(address.environment == .none)
    }

    @Test func `key that is no address id cannot be gone`() {
        #expect(throws: RecordError.badKey) { _ = try registration("shop//alert", nil) }
        #expect(throws: RecordError.badKey) { _ = try registration("shop/i/alert", nil) }
    }

    @Test(arguments: [
        ("ABCDEF", "abcdef"), ("  ab\n", "ab"), ("not hex", "not hex"),
        (
            "q83vEjRWeJCrze8SNFZ4kKvN7xI0VniQq83vEjRWeJA=",
            "abcdef1234567890abcdef1234567890abcdef1234567890abcdef1234567890"
        ),
    ]) func `APNs token in one spelling`(given: String, expected: String) {
        #expect(CanonicalToken.spell(given, for: .apns) == expected)
    }

    @Test func `FCM token keeps its case`() {
        #expect(CanonicalToken.spell("aB:c ", for: .fcm) == "aB:c")
    }
}

@Suite struct `Records of verdicts` {
    @Test func `written record reads as it was`() throws {
        let device = try address(
            "shop/i",
            #"{"app":"shop","install_id":"i","gateway":"fcm","token":"t\"1","user_id":"u"}"#)
        var record = InvalidationRecord(
            device, verdict: .suspend, reason: "SENDER_ID_MISMATCH", origin: .gateway,
            asOf: UnixMillis(77))
        record.gatewayTime = UnixMillis(76)
        record.eventID = "e"
        record.resultID = "r"
        let bytes = ByteWriter()
        record.encode(to: bytes)
        let read = try #require(
            try Array("shop/i".utf8).withUnsafeBytes {
                try InvalidationRecord.decode(key: $0, value: bytes.bytes, parser: JSONParser())
            })
        #expect(read.addressID == device.id && read.verdict == .suspend)
        #expect(read.asOf == UnixMillis(77) && read.gatewayTime == UnixMillis(76))
        #expect(read.token == "t\"1" && read.tokenHash == device.tokenHash)
        #expect(
            read.userID == "u" && read.gateway == .fcm
                && read.environment == GatewayEnvironment.none)
        #expect(read.reason == "SENDER_ID_MISMATCH" && read.origin == .gateway)
        #expect(read.eventID == "e" && read.resultID == "r" && read.fuseID == nil)
    }

    @Test func `null value says nothing`() throws {
        let record = try Array("shop/i".utf8).withUnsafeBytes {
            try InvalidationRecord.decode(key: $0, value: nil, parser: JSONParser())
        }
        #expect(record == nil)
    }
}

@Suite struct `The stored form of an address` {
    @Test func `survives being stored and given to another user`() throws {
        let original = try address(
            "shop/i/voip/x",
            #"{"app":"shop","install_id":"i","kind":"voip","instance":"x","gateway":"fcm","token":"t","user_id":"first","locale":"sv"}"#
        )
        for user in ["second user", nil, "x"] {
            let moved = original.with(userID: user)
            let copy = moved.withAddressID { id in
                moved.withStored { DeviceAddress(id: id, stored: $0) }
            }
            let read = try #require(copy)
            #expect(read.userID == user && read.token == "t" && read.locale == "sv")
            #expect(read.addressID == "shop/i/voip/x" && read.instance == "x")
            #expect(read.tokenHash == original.tokenHash)
        }
    }

    @Test func `is refused when it is cut or of another layout`() throws {
        let original = try address(
            "shop/i", #"{"app":"shop","install_id":"i","gateway":"fcm","token":"t"}"#)
        let bytes = original.withStored { Array($0) }
        for count in 0..<bytes.count {
            let cut = bytes[..<count].withUnsafeBytes { part in
                original.withAddressID { DeviceAddress(id: $0, stored: part) }
            }
            #expect(cut == nil)
        }
        var other = bytes
        other[0] = 9
        let read = other.withUnsafeBytes { part in
            original.withAddressID { DeviceAddress(id: $0, stored: part) }
        }
        #expect(read == nil)
    }
}
