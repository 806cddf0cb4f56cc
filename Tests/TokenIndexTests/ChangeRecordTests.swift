// Records of `push.devices` as Debezium writes them, in the shapes that its settings give them.

import Base
import JSON
import Testing

@testable import TokenIndex

/// Decodes a record given as texts.
private func decode(
    _ key: String?, _ value: String?, tables: [RegistrationTable] = [], timestamp: Int64 = 5_000
) throws(RecordError) -> DecodedRegistration {
    let decoder = RegistrationDecoder(tables: tables)
    func lend<Value>(_ text: String?, _ body: (UnsafeRawBufferPointer?) -> Value) -> Value {
        guard let text else { return body(nil) }
        return Array(text.utf8).withUnsafeBytes { body($0) }
    }
    let result = lend(key) { key in
        lend(value) { value -> Result<DecodedRegistration, RecordError> in
            do throws(RecordError) {
                return .success(try decoder.decode(key: key, value: value, timestamp: timestamp))
            } catch { return .failure(error) }
        }
    }
    return try result.get()
}

/// What records say, one word each: `+id` registered, `-id` gone.
private func summary(_ decoded: DecodedRegistration) -> [String] {
    decoded.records.map { record in
        switch record {
        case .registered(let address): "+\(address.addressID)"
        case .gone(let id): "-\(id)"
        }
    }
}

private func onlyAddress(_ decoded: DecodedRegistration) throws -> DeviceAddress {
    guard case .registered(let address)? = decoded.records.last else { throw RecordError.noKey }
    return address
}

/// A row of a table whose columns are named as our fields.
private func row(_ install: String = "i", _ more: String = "") -> String {
    """
    {"app":"shop","install_id":"\(install)","kind":"alert","instance":"","user_id":"u",
     "platform":"android","gateway":"fcm","environment":"none","token":"t"\(more)}
    """
}

private func change(
    _ operation: String, before: String = "null", after: String = "null",
    source: String = #"{"schema":"public","table":"devices","ts_ms":1}"#
) -> String {
    #"{"before":\#(before),"after":\#(after),"source":\#(source),"op":"\#(operation)","ts_ms":1}"#
}

private let keyOfRow = #"{"app":"shop","install_id":"i","kind":"alert","instance":""}"#
private let tombstoneKeys = [
    #"{"id":7}"#, #"{"schema":{"type":"struct"},"payload":{"id":7}}"#,
]

@Suite struct `Change records of a table with our columns` {
    @Test(arguments: ["c", "u", "r"]) func `say what the address is`(operation: String) throws {
        let address = try onlyAddress(
            try decode(#"{"id":7}"#, change(operation, after: row("i", #","version":3"#))))
        #expect(address.addressID == "shop/i" && address.userID == "u" && address.token == "t")
        #expect(address.version == 3 && address.registeredAt == UnixMillis(5_000))
    }

    @Test func `have the time of their commit`() throws {
        for operation in ["c", "u", "r"] {
            let source = #"{"table":"devices","ts_ms":1700000000123}"#
            let timed = change(operation, after: row(), source: source)
            #expect(try decode(keyOfRow, timed).timestamp == 1_700_000_000_123)
            let untimed = change(operation, after: row(), source: #"{"table":"devices"}"#)
            #expect(try decode(keyOfRow, untimed).timestamp == 5_000)
        }
    }

    @Test func `may carry their schema around key and value`() throws {
        let value = #"{"schema":{"fields":[]},"payload":\#(change("c", after: row()))}"#
        for key in [tombstoneKeys[1], #"{"schema":null,"payload":\#(keyOfRow)}"#, "any text"] {
            #expect(summary(try decode(key, value)) == ["+shop/i"])
        }
    }

    @Test func `may be framed by a schema registry`() throws {
        let frame = "\0\0\0\0\u{9}"
        #expect(
            summary(try decode(frame + keyOfRow, frame + change("c", after: row()))) == ["+shop/i"])
        #expect(summary(try decode(frame + keyOfRow, nil)) == ["-shop/i"])
    }

    @Test func `a delete takes away the row that was`() throws {
        let value = change("d", before: row("i", #","kind":"voip""#))
        #expect(summary(try decode(#"{"id":7}"#, value)) == ["-shop/i/voip"])
    }

    @Test func `a delete without the former row needs an address in the key`() throws {
        // Without REPLICA IDENTITY FULL the columns that are not in the key are null.
        let bare = #"{"app":null,"install_id":null,"id":7}"#
        for before in [bare, "null"] {
            #expect(summary(try decode(keyOfRow, change("d", before: before))) == ["-shop/i"])
            for key in tombstoneKeys {
                #expect(throws: RecordError.deletedRowUnknown) {
                    _ = try decode(key, change("d", before: before))
                }
            }
        }
    }

    @Test func `the null behind a delete repeats it or says nothing`() throws {
        #expect(summary(try decode(keyOfRow, nil)) == ["-shop/i"])
        #expect(
            summary(try decode(#"{"schema":{},"payload":\#(keyOfRow)}"#, nil)) == ["-shop/i"])
        #expect(
            summary(
                try decode(
                    #"{"schema":{},"payload":\#(keyOfRow)}"#, #"{"schema":null,"payload":null}"#))
                == ["-shop/i"])
        #expect(summary(try decode(#""shop/i/voip""#, nil)) == ["-shop/i/voip"])
        for key in tombstoneKeys { #expect(try decode(key, nil).records.isEmpty) }
    }

    @Test func `a row that becomes another address leaves the former one`() throws {
        let value = change("u", before: row("i1"), after: row("i2"))
        #expect(summary(try decode(#"{"id":7}"#, value)) == ["-shop/i1", "+shop/i2"])
        // Without REPLICA IDENTITY FULL the former row is not there; the token's claim decides.
        #expect(summary(try decode(#"{"id":7}"#, change("u", after: row("i2")))) == ["+shop/i2"])
    }

    @Test func `a row without its change record is taken as well`() throws {
        #expect(summary(try decode(keyOfRow, row())) == ["+shop/i"])
        #expect(
            summary(try decode(keyOfRow, row("i", #","__deleted":"false""#))) == ["+shop/i"])
        #expect(summary(try decode(keyOfRow, row("i", #","__deleted":"true""#))) == ["-shop/i"])
    }

    @Test func `lists and documents may stand in texts`() throws {
        let more =
            #","opt_outs":"[\"news\"]","muted_channels":["a"],"public_keys":"[{\"kid\":\"k\"}]""#
        let address = try onlyAddress(
            try decode(keyOfRow, change("c", after: row("i", more))))
        #expect(address.optOuts == ["news"] && address.mutedChannels == ["a"])
        #expect(address.publicKeys == #"[{"kid":"k"}]"#)
    }

    @Test func `a large value that did not change is taken from the former row`() throws {
        let hidden = row("i", #","token":"__debezium_unavailable_value""#)
        let address = try onlyAddress(
            try decode(keyOfRow, change("u", before: row(), after: hidden)))
        #expect(address.token == "t")
        #expect(throws: RecordError.missing(field: "token")) {
            _ = try decode(keyOfRow, change("u", after: hidden))
        }
        #expect(throws: RecordError.missing(field: "token")) {
            _ = try decode(keyOfRow, change("u", before: hidden, after: hidden))
        }
    }

    @Test(arguments: [
        ("t", RecordError.truncated), ("m", .missing(field: "app")),
        ("c", .missing(field: "after")),
    ]) func `what names no row is skipped`(operation: String, error: RecordError) {
        for key in [keyOfRow, nil] where operation == "t" || key != nil {
            #expect(throws: error) { _ = try decode(key, change(operation)) }
        }
    }

    @Test func `a broken row or key names its field and quotes nothing`() {
        let secret = "SECRET-TOKEN"
        let values = [
            change("c", after: row("i", #","registered_at":"\#(secret)""#)),
            change("c", after: row("i", #","opt_outs":"\#(secret)""#)),
            change("c", after: row("i", #","gateway":"\#(secret)""#)),
            change("c", after: row(secret + "/")), "\(secret)", "[\"\(secret)\"]",
            #"{"schema":{},"payload":"\#(secret)"}"#,
            change("c", after: #""\#(secret)""#), String(repeating: "[", count: 5_000) + secret,
            "{\"token\":\"" + String(repeating: secret, count: 8_192) + "\"}",
        ]
        for value in values {
            do throws(RecordError) {
                _ = try decode(#"{"id":7}"#, value)
                Issue.record("taken: \(value.prefix(80))")
            } catch {
                #expect(!error.description.contains("SECRET"), "\(error)")
            }
        }
        for key in ["{", #"{"a"#, "[1]", #"{"schema":null,"payload":5}"#] {
            #expect(throws: RecordError.badKey) { _ = try decode(key, nil) }
        }
    }

    @Test(arguments: 0..<200 as Range<UInt64>)
    func `bytes that are no record cost an error and nothing else`(seed: UInt64) {
        var random = SeededRandom(seed: seed)
        let whole =
            #"{"schema":{"fields":[]},"payload":\#(change("u", before: row("j"), after: row()))}"#
        var bytes = Array(whole.utf8)
        for _ in 0..<Int.random(in: 1...8, using: &random) {
            let place = Int.random(in: 0..<bytes.count, using: &random)
            bytes[place] = UInt8.random(in: 0...255, using: &random)
        }
        if Bool.random(using: &random) {
            bytes.removeLast(Int.random(in: 0..<bytes.count, using: &random))
        }
        let decoder = RegistrationDecoder(tables: [RegistrationTable(name: "devices", app: "shop")])
        bytes.withUnsafeBytes { bytes in
            // Whatever it makes of it, it returns; the key may be as broken as the value.
            for key in [bytes, UnsafeRawBufferPointer(rebasing: bytes.prefix(9))] {
                _ = try? decoder.decode(key: key, value: bytes, timestamp: 1)
                _ = try? decoder.decode(key: key, value: nil, timestamp: 1)
            }
        }
    }
}

@Suite struct `Times of a row` {
    @Test(arguments: [
        ("1700000000123", 1_700_000_000_123), ("1700000000123456", 1_700_000_000_123),
        ("1700000000123456789", 1_700_000_000_123),
        (#""2023-11-14T22:13:20.123456Z""#, 1_700_000_000_123),
        (#""2023-11-14T23:13:20.123+01:00""#, 1_700_000_000_123), ("0", 0),
    ]) func `are read in every encoding`(text: String, expected: Int64) throws {
        let value = change(
            "c", after: row("i", #","registered_at":\#(text),"expires_at":\#(text)"#))
        let address = try onlyAddress(try decode(keyOfRow, value))
        #expect(address.registeredAt == UnixMillis(expected))
        #expect(address.expiresAt == UnixMillis(expected))
    }

    /// Close to 1970 only the schema knows the unit.
    @Test(arguments: [
        ("io.debezium.time.Timestamp", 7_000_000), ("io.debezium.time.MicroTimestamp", 7_000),
        ("io.debezium.time.NanoTimestamp", 7),
        ("org.apache.kafka.connect.data.Timestamp", 7_000_000),
    ]) func `have the unit of their column`(type: String, expected: Int64) throws {
        let columns = #"[{"type":"int64","name":"\#(type)","field":"registered_at"}]"#
        let schema = """
            {"type":"struct","fields":[{"type":"struct","fields":[],"field":"before"},
             {"type":"struct","fields":\(columns),"field":"after"},{"type":"string","field":"op"}]}
            """
        let payload = change("c", after: row("i", #","registered_at":7000000"#))
        let address = try onlyAddress(
            try decode(keyOfRow, #"{"schema":\#(schema),"payload":\#(payload)}"#))
        #expect(address.registeredAt == UnixMillis(expected))
    }

    @Test(arguments: ["-1", "1.5", #""yesterday""#, "true", #""2023-02-30T00:00:00Z""#])
    func `are an error when they are none`(text: String) {
        #expect(
            throws: RecordError.invalid(field: "registered_at", expected: RecordReader.timeExpected)
        ) {
            _ = try decode(keyOfRow, change("c", after: row("i", #","registered_at":\#(text)"#)))
        }
    }

    @Test func `of native records stay what the schema says`() {
        #expect(throws: RecordError.self) {
            _ = try decode("shop/i", row("i", #","registered_at":"2023-11-14T22:13:20Z""#))
        }
    }
}

/// A row of `device_registrations`.
private func registration(
    _ id: Int, _ fingerprint: String?, _ user: String?, token: String, platform: String = "android",
    active: Bool = true, seen: Int = 1_700_000_000_000_000, updated: Int = 1_700_000_000_000_000
) -> String {
    func quoted(_ text: String?) -> String { text.map { "\"\($0)\"" } ?? "null" }
    return """
        {"id":"row-\(id)","user_id":\(quoted(user)),"device_fingerprint":\(quoted(fingerprint)),
         "platform":"\(platform)","push_token":"\(token)","app_version":"2.0","os_version":"14",
         "is_active":\(active),"created_at":1600000000000000,"updated_at":\(updated),
         "last_seen_at":\(seen),"tombstoned_at":null,"tombstone_reason":null}
        """
}

private let source = #"{"schema":"public","table":"device_registrations"}"#
private let registrations = RegistrationTable(name: "device_registrations", app: "shop")

@Suite struct `Change records of device_registrations` {
    private func decoded(
        _ value: String, key: String = #"{"id":"row-1"}"#, table: RegistrationTable = registrations
    ) throws(RecordError) -> DecodedRegistration {
        try decode(key, value, tables: [table])
    }

    @Test(arguments: [
        ("ios", "ABCD", Gateway.apns, "abcd"), ("android", "Ab:c", .fcm, "Ab:c"),
    ]) func `are addresses of app, gateway and environment of the mapping`(
        platform: String, token: String, gateway: Gateway, spelled: String
    ) throws {
        for name in ["device_registrations", "public.device_registrations"] {
            let table = RegistrationTable(name: name, app: "shop", environment: .sandbox)
            let after = registration(1, "fp", "ada", token: token, platform: platform)
            let address = try onlyAddress(
                try decoded(change("c", after: after, source: source), table: table))
            #expect(address.addressID == "shop/fp/alert/row-1" && address.installID == "fp")
            #expect(address.kind == "alert" && address.instance == "row-1")
            #expect(address.userID == "ada" && address.platform == platform)
            #expect(address.gateway == gateway && address.token == spelled)
            #expect(address.environment == (gateway == .apns ? .sandbox : .none))
            #expect(address.registeredAt == UnixMillis(1_700_000_000_000))
            #expect(address.lastSeenAt == UnixMillis(1_700_000_000_000))
            #expect(address.appVersion == "2.0" && address.version == 0)
        }
    }

    @Test func `a browser's subscription may be the token`() throws {
        let p256dh =
            "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
        let subscription =
            #"{\"endpoint\":\"https://push.example/x\",\"expirationTime\":null,\"keys\":{\"p256dh\":\"\#(p256dh)\",\"auth\":\"BTBZMqHH6r4Tts7J_aSIgg\"}}"#
        let after = registration(1, "fp", "ada", token: subscription, platform: "web")
        let address = try onlyAddress(try decoded(change("c", after: after, source: source)))
        #expect(address.gateway == .webpush && address.token == "https://push.example/x")
        #expect(address.p256dh == p256dh && address.auth == "BTBZMqHH6r4Tts7J_aSIgg")
        let bare = registration(1, "fp", "ada", token: "https://push.example/x", platform: "web")
        #expect(throws: RecordError.missing(field: "p256dh")) {
            _ = try decoded(change("c", after: bare, source: source))
        }
    }

    @Test func `an inactive row is gone and takes no other token along`() throws {
        let index = InMemoryTokenIndex()
        var offset: Int64 = 0
        func apply(_ operation: String, _ after: String, partition: Int32) throws {
            offset += 1
            let decoded = try decoded(change(operation, after: after, source: source))
            for record in decoded.records {
                index.apply(
                    .registration(record),
                    at: TopicPosition(
                        partition: partition, offset: offset, timestamp: decoded.timestamp))
            }
        }
        func tokens(_ user: String) -> [String] {
            index.addresses(app: "shop", userID: user).addresses.map(\.token)
        }
        // The device got a new token; afterwards the old one is reported dead.
        try apply("c", registration(1, "fp", "ada", token: "old"), partition: 0)
        try apply("c", registration(2, "fp", "ada", token: "new"), partition: 1)
        try apply("u", registration(1, "fp", "ada", token: "old", active: false), partition: 0)
        #expect(tokens("ada") == ["new"])
        // Read the other way round, as a rebuild may, it is the same.
        try apply("u", registration(2, "fp", nil, token: "new"), partition: 1)
        #expect(tokens("ada") == [])
        try apply("u", registration(2, "fp", "grace", token: "new"), partition: 1)
        #expect(tokens("grace") == ["new"])
    }

    @Test func `rows of a snapshot have the time of their last change`() throws {
        let after = registration(1, "fp", "ada", token: "t", updated: 1_650_000_000_000_000)
        #expect(
            try decoded(change("r", after: after, source: source)).timestamp == 1_650_000_000_000)
        #expect(try decoded(change("u", after: after, source: source)).timestamp == 5_000)
    }

    @Test func `a snapshot in any order gives a shared device to its last user`() throws {
        let rows = [
            registration(2, "fp", "ada", token: "a", updated: 1_600_000_000_000_000),
            registration(1, "fp", "grace", token: "b", updated: 1_600_000_000_001_000),
        ]
        for order in [[0, 1], [1, 0]] {
            let index = InMemoryTokenIndex()
            for (offset, number) in order.enumerated() {
                let decoded = try decoded(change("r", after: rows[number], source: source))
                for record in decoded.records {
                    index.apply(
                        .registration(record),
                        at: TopicPosition(
                            partition: Int32(number), offset: Int64(offset),
                            timestamp: decoded.timestamp))
                }
            }
            #expect(index.addresses(app: "shop", userID: "ada").addresses.isEmpty)
            #expect(index.addresses(app: "shop", userID: "grace").addresses.count == 2)
        }
    }

    @Test func `deletes and what follows them`() throws {
        let row = registration(1, "fp", "ada", token: "t")
        #expect(
            summary(try decoded(change("d", before: row, source: source)))
                == ["-shop/fp/alert/row-1"])
        // The connector's message.key.columns makes the key name the address.
        let key = #"{"id":"row-1","device_fingerprint":"fp"}"#
        let bare = #"{"id":"row-1","device_fingerprint":null,"push_token":null}"#
        #expect(
            summary(try decoded(change("d", before: bare, source: source), key: key))
                == ["-shop/fp/alert/row-1"])
        #expect(
            summary(try decode(key, nil, tables: [registrations])) == ["-shop/fp/alert/row-1"])
        #expect(try decode(#"{"id":"row-1"}"#, nil, tables: [registrations]).records.isEmpty)
        #expect(
            try decode(#"{"device_fingerprint":"fp"}"#, nil, tables: [registrations]).records
                .isEmpty)
        #expect(throws: RecordError.deletedRowUnknown) {
            _ = try decoded(change("d", before: bare, source: source))
        }
    }

    @Test func `a row that moves to another device is two changes`() throws {
        let value = change(
            "u", before: registration(1, "fp1", "ada", token: "t"),
            after: registration(1, "fp2", "ada", token: "t"), source: source)
        #expect(summary(try decoded(value)) == ["-shop/fp1/alert/row-1", "+shop/fp2/alert/row-1"])
    }

    @Test func `columns can have other names and say more`() throws {
        var table = RegistrationTable(name: "phones", app: "shop")
        table.columns = [
            "install_id": "phone", "user_id": "owner", "token": "t", "gateway": "via",
            "environment": "env", "app": "product", "platform": "os", "active": "on",
        ]
        let after =
            #"{"phone":17,"owner":4,"t":"AB","via":"apns","env":"sandbox","product":"web","os":"x","on":1}"#
        let phones = #"{"table":"phones"}"#
        let address = try onlyAddress(
            try decoded(change("c", after: after, source: phones), table: table))
        #expect(address.addressID == "web/17" && address.userID == "4" && address.token == "ab")
        #expect(address.environment == .sandbox)
        let off = after.replacing(#""on":1"#, with: #""on":0"#)
        #expect(
            summary(try decoded(change("u", after: off, source: phones), table: table))
                == ["-web/17"])
    }

    @Test func `a platform or fingerprint that is not known skips the row`() {
        #expect(throws: RecordError.unknown(field: "platform")) {
            _ = try decoded(
                change(
                    "c", after: registration(1, "fp", "u", token: "t", platform: "symbian"),
                    source: source))
        }
        #expect(throws: RecordError.missing(field: "install_id")) {
            _ = try decoded(
                change("c", after: registration(1, nil, "u", token: "t"), source: source))
        }
    }
}

extension String {
    fileprivate func replacing(_ part: String, with other: String) -> String {
        guard let range = firstRange(of: part) else { return self }
        return String(self[..<range.lowerBound]) + other + String(self[range.upperBound...])
    }
}
