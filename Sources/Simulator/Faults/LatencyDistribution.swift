public import Base
internal import Glibc

/// How long an answer takes.
public enum LatencyDistribution: Sendable, Hashable {
    /// Always the same.
    case fixed(TimeSpan)
    /// Evenly between two spans.
    case uniform(TimeSpan, TimeSpan)
    /// Log-normal, as measured round trips are: half of the answers are faster than `median`;
    /// `sigma` is the standard deviation of the logarithm, 0.5 for a moderate tail.
    case lognormal(median: TimeSpan, sigma: Double)

    func draw(_ random: inout SeededRandom) -> TimeSpan {
        switch self {
        case .fixed(let span): return span
        case .uniform(let low, let high):
            guard low < high else { return low }
            return TimeSpan(nanos: Int64.random(in: low.nanos...high.nanos, using: &random))
        case .lognormal(let median, let sigma):
            // Box and Muller's transformation of two even draws into a normal one.
            let first = Double.random(in: Double.leastNonzeroMagnitude..<1, using: &random)
            let second = Double.random(in: 0..<1, using: &random)
            let normal = (-2 * log(first)).squareRoot() * cos(2 * Double.pi * second)
            let nanos = Double(median.nanos) * exp(sigma * normal)
            return TimeSpan(nanos: Int64(min(nanos, 3.6e12)))
        }
    }
}
