// So many of something in so long.

/// A bound on how often something happens.
public struct Cap: Equatable, Hashable, Sendable {
    /// How many there may be in `span`; at least 1.
    public let count: Int
    /// In how long; at least 1 ms.
    public let span: TimeSpan

    /// At most `count` in any `span`.
    public init(_ count: Int, in span: TimeSpan) {
        precondition(count >= 1 && span >= .milliseconds(1), "a cap lets something through")
        self.count = count
        self.span = span
    }
}
