import Base
import Testing

@Suite struct `Bytes and identifiers` {
    @Test(
        arguments: [
            0, 7, 10, 99, 100, -1, .max, .min, 1_735_689_600_000, 9_999_999_999_999_999,
        ] as [Int64])
    func `decimal numbers are written as Swift writes them`(value: Int64) {
        let writer = ByteWriter(capacity: 0)
        writer.append(decimal: value)
        #expect(writer.text == String(value))
    }

    @Test func `JSON strings escape only what the grammar demands`() {
        let writer = ByteWriter()
        writer.append(jsonString: "a/\"\\\n\r\t\u{1}é🎉")
        #expect(writer.text == "\"a/\\\"\\\\\\n\\r\\t\\u0001é🎉\"")
    }

    @Test func `any byte at any place in a JSON string is escaped as the grammar demands`() {
        let writer = ByteWriter()
        for length in 1...20 {
            for place in 0..<length {
                for byte in UInt8.min...UInt8.max {
                    var source = [UInt8](repeating: 0x61, count: length)
                    source[place] = byte
                    writer.removeAll()
                    source.withUnsafeBytes { writer.append(jsonString: $0) }
                    let escaped = byte < 0x20 || byte == 0x22 || byte == 0x5C
                    var expected = source
                    if escaped {
                        let name: [UInt8: String] = [
                            0x22: "\\\"", 0x5C: "\\\\", 0x0A: "\\n", 0x0D: "\\r", 0x09: "\\t",
                        ]
                        let long = "\\u00" + Hex.encode([byte])
                        expected.replaceSubrange(place...place, with: (name[byte] ?? long).utf8)
                    }
                    if writer.array != [0x22] + expected + [0x22] {
                        Issue.record("byte \(byte) at \(place) of \(length)")
                    }
                }
            }
        }
    }

    @Test func `a UUID survives its text form`() throws {
        let text = "123e4567-e89b-52d3-a456-426614174000"
        let uuid = try #require(UUIDBytes(text))
        #expect(uuid.text == text)
        #expect(UUIDBytes("123E4567-E89B-52D3-A456-426614174000") == uuid)
        #expect(UUIDBytes("123e4567e89b-52d3-a456-426614174000-") == nil)
        #expect(UUIDBytes("") == nil)
    }

    @Test func `base64url reads both alphabets and refuses the rest`() {
        for length in 0..<40 {
            let bytes = (0..<length).map { UInt8(truncatingIfNeeded: $0 &* 89 &+ 3) }
            #expect(Base64URL.decode(Base64URL.encode(bytes).utf8) == bytes)
        }
        #expect(Base64URL.decode("+/8=".utf8) == Base64URL.decode("-_8".utf8))
        #expect(Base64URL.decode("A".utf8) == nil)
        #expect(Base64URL.decode("AA=A".utf8) == nil)
        #expect(Base64URL.decode("A A".utf8) == nil)
    }

    @Test func `a manual clock keeps both times together until the wall clock steps`() {
        let time = ManualTime()
        let (start, wall) = (time.monotonic, time.wall)
        for _ in 0..<4 { time.advance(by: .microseconds(250)) }
        #expect(time.monotonic - start == .milliseconds(1))
        #expect(time.wall - wall == .milliseconds(1))
        time.step(wall: .hours(-1))
        #expect(time.monotonic - start == .milliseconds(1))
        #expect(time.wall - wall == .milliseconds(1) - .hours(1))
    }
}
