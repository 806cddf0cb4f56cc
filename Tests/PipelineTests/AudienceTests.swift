import Base
import JSON
import Testing
import TokenIndex

@testable import Pipeline

/// Whom an event with `only` or `except` is for: a phone at APNs, one at FCM, and a tablet at APNs.
@Suite struct `The devices that an event means` {
    private static let devices = [
        (install: "phone", platform: "ios", gateway: "apns"),
        (install: "droid", platform: "android", gateway: "fcm"),
        (install: "pad", platform: "ipados", gateway: "apns"),
    ]

    @Test(arguments: [
        // One list names its members, and several narrow each other.
        (#""only":{"gateways":["apns"]}"#, ["phone", "pad"]),
        (#""only":{"gateways":["apns"],"platforms":["ios","android"]}"#, ["phone"]),
        (#""only":{"install_ids":["droid"],"gateways":["apns"]}"#, []),
        (#""only":{"install_ids":["pad"],"platforms":["ipados"],"gateways":["apns"]}"#, ["pad"]),
        // A list that is not given restricts nothing, one that is given and empty names nobody.
        (#""only":{}"#, ["phone", "droid", "pad"]),
        (#""only":{"platforms":null}"#, ["phone", "droid", "pad"]),
        (#""only":{"install_ids":[]}"#, []),
        (#""only":{"install_ids":[],"gateways":["apns"]}"#, []),
        // What any list names is left out.
        (#""except":{"install_ids":["phone"],"gateways":["fcm"]}"#, ["pad"]),
        (#""except":{}"#, ["phone", "droid", "pad"]),
        (#""except":{"install_ids":[]}"#, ["phone", "droid", "pad"]),
        (#""only":{"gateways":["apns"]},"except":{"install_ids":["pad"]}"#, ["phone"]),
    ])
    func `are those that only's lists all name and except's lists do not`(
        restriction: String, meant: [String]
    ) throws {
        let parser = JSONParser()
        let event = Array(#"{"type":"t","user_id":"u1",\#(restriction)}"#.utf8)
        try event.withUnsafeBytes { bytes in
            let envelope = try Self.envelope(bytes, parser)
            let found = try Self.devices.filter { device in
                envelope.addresses(try Self.address(device), nil)
            }
            #expect(found.map(\.install) == meant)
        }
    }

    @Test func `an empty list and none are different audiences`() throws {
        func audience(_ restriction: String) throws -> UInt64 {
            let parser = JSONParser()
            let event = Array(#"{"type":"t","user_id":"u1","only":\#(restriction)}"#.utf8)
            return try event.withUnsafeBytes { bytes in
                let flight = EventInFlight()
                flight.envelope = try Self.envelope(bytes, parser)
                return flight.orderAudience
            }
        }
        let all = try audience("{}")
        #expect(try audience(#"{"install_ids":null}"#) == all)
        #expect(try audience(#"{"install_ids":[]}"#) != all)
        #expect(try audience(#"{"install_ids":[]}"#) != audience(#"{"platforms":[]}"#))
    }

    private static func envelope(
        _ bytes: UnsafeRawBufferPointer, _ parser: JSONParser
    ) throws -> EventEnvelope {
        try EventDecoder(maximumBytes: 4096).decode(
            InputRecord(
                position: RecordPosition(topic: "push.events", partition: 0, offset: 0),
                timestamp: UnixMillis(1_735_689_600_000), key: nil, value: bytes, headers: []),
            with: parser)
    }

    private static func address(
        _ device: (install: String, platform: String, gateway: String)
    ) throws -> DeviceAddress {
        let token = String(repeating: "ab", count: 40)
        let record =
            #"{"v":1,"app":"shop","install_id":"\#(device.install)","user_id":"u1","#
            + #""gateway":"\#(device.gateway)","platform":"\#(device.platform)","#
            + #""environment":"\#(device.gateway == "apns" ? "production" : "none")","#
            + #""token":"\#(token)","version":1}"#
        let decoded = try Array("shop/\(device.install)".utf8).withUnsafeBytes { key in
            try Array(record.utf8).withUnsafeBytes { value in
                try RegistrationRecord.decode(
                    key: key, value: value, timestamp: 0, parser: JSONParser())
            }
        }
        guard case .registered(let address) = decoded else { throw RecordError.notAnObject }
        return address
    }
}
