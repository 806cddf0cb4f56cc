import Base
import Testing

@Suite struct `RFC 3339 timestamps` {
    @Test(arguments: [
        ("1970-01-01T00:00:00Z", 0), ("2025-01-01T00:00:00Z", 1_735_689_600_000),
        ("2024-02-29T23:59:59.999Z", 1_709_251_199_999), ("1969-12-31T23:59:59.5Z", -500),
        ("2025-01-01T01:30:00+01:30", 1_735_689_600_000),
        ("2025-01-01t00:00:00.1234567z", 1_735_689_600_123),
    ])
    func `are read to the millisecond`(text: String, millis: Int64) {
        #expect(RFC3339.parse(text) == UnixMillis(millis))
    }

    @Test(arguments: [
        "", "2025-01-01", "2025-02-29T00:00:00Z", "2025-13-01T00:00:00Z", "2025-01-01T24:00:00Z",
        "2025-01-01T00:00:00", "2025-01-01T00:00:00.Z", "2025-01-01T00:00:00Zx",
        "2025-01-01T00:00:00+1:00", "yesterday",
    ])
    func `that are none are refused`(text: String) {
        #expect(RFC3339.parse(text) == nil)
    }

    @Test func `survive their text form`() {
        var random = SeededRandom(seed: 7)
        for _ in 0..<1000 {
            let time = UnixMillis(
                Int64.random(in: -60_000_000_000_000...200_000_000_000_000, using: &random))
            #expect(RFC3339.parse(RFC3339.text(time)) == time)
        }
    }
}
