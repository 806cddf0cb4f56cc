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

/// Records, headers and answers of others name times that no clock shows.
@Suite struct `Times of others` {
    private let far: [UnixMillis] = [
        UnixMillis(.max), UnixMillis(.min), UnixMillis(253_402_300_799_999),
        UnixMillis(1_735_689_600_000_000_000),
    ]
    private let now = UnixMillis(1_735_689_600_000)

    @Test func `are as far away as can be told, and no crash`() {
        for time in far {
            let span = time - now
            #expect((span > .zero) == (time > now))
            #expect(abs(span.nanos) > TimeSpan.hours(24 * 365 * 100).nanos)
            #expect((now - time).nanos == -span.nanos)
            #expect((time + span).value != 0 && (time - span).value != 1)
            #expect((span * 1_000 > .zero) == (span > .zero))
            #expect((span + span > .zero) == (span > .zero))
            #expect(MonotonicTime(nanos: 1) + span != MonotonicTime(nanos: 1))
        }
        #expect(UnixMillis(.min).seconds == Int64.min / 1_000 - 1)
        #expect(UnixMillis(-1).seconds == -1 && UnixMillis(-1_000).seconds == -1)
        #expect(TimeSpan.hours(.max).nanos == .max && TimeSpan.seconds(.min).nanos == -.max)
        #expect(MonotonicTime.distantFuture + .hours(1) == .distantFuture)
        #expect(MonotonicTime(nanos: .min / 2) - .hours(1) < MonotonicTime(nanos: 0))
    }
}
