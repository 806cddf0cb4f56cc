/// A small, fast, seedable generator (SplitMix64): for jitter and for tests that replay a seed.
/// Never for keys.
public struct SeededRandom: RandomNumberGenerator, Sendable {
    private var state: UInt64

    /// The generator that a seed determines.
    public init(seed: UInt64) { state = seed }

    /// A generator seeded by the system's entropy.
    public static func fromSystem() -> SeededRandom {
        SeededRandom(seed: UInt64.random(in: .min ... .max))
    }

    /// The next 64 bits.
    public mutating func next() -> UInt64 {
        state &+= 0x9E37_79B9_7F4A_7C15
        var mixed = state
        mixed = (mixed ^ (mixed >> 30)) &* 0xBF58_476D_1CE4_E5B9
        mixed = (mixed ^ (mixed >> 27)) &* 0x94D0_49BB_1331_11EB
        return mixed ^ (mixed >> 31)
    }

    /// A span drawn evenly from zero to `limit`: full jitter.
    public mutating func span(upTo limit: TimeSpan) -> TimeSpan {
        limit.nanos <= 0 ? .zero : TimeSpan(nanos: Int64.random(in: 0...limit.nanos, using: &self))
    }
}
