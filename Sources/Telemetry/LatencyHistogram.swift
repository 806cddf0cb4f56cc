public import Base

/// Latencies for a summary at the end of a run: quantiles within 3 % at any scale, in a fixed
/// 15 KiB. A plain value; lanes keep their own and merge them.
public struct LatencyHistogram: Sendable {
    // Log-linear: each power of two is cut into 32 equal parts, values below 32 ns are exact.
    private static let partBits = 5
    private static let parts = 1 << partBits
    private static let slots = (64 - partBits) * parts

    private var counts = [UInt64](repeating: 0, count: slots)
    private var sum = 0.0

    /// The number of recorded latencies.
    public private(set) var count: UInt64 = 0
    /// The longest recorded latency.
    public private(set) var longest: TimeSpan = .zero

    /// A histogram without records.
    public init() {}

    /// Records a latency; a negative one counts as zero.
    public mutating func record(_ span: TimeSpan) {
        let nanos = UInt64(max(0, span.nanos))
        counts[Self.slot(nanos)] += 1
        count += 1
        sum += Double(nanos)
        if span > longest { longest = span }
    }

    /// Adds everything that another histogram recorded.
    public mutating func merge(_ other: LatencyHistogram) {
        for index in counts.indices { counts[index] += other.counts[index] }
        count += other.count
        sum += other.sum
        longest = max(longest, other.longest)
    }

    /// The latency that the given share of records, from 0 to 1, does not exceed; zero without
    /// records.
    public func quantile(_ share: Double) -> TimeSpan {
        precondition(share >= 0 && share <= 1)
        if count == 0 { return .zero }
        let rank = max(1, UInt64((Double(count) * share).rounded(.up)))
        var seen: UInt64 = 0
        for (index, slotCount) in counts.enumerated() {
            seen += slotCount
            if seen >= rank { return min(Self.upperBound(index), longest) }
        }
        return longest
    }

    /// The mean latency; zero without records.
    public var mean: TimeSpan {
        count == 0 ? .zero : TimeSpan(nanos: Int64(sum / Double(count)))
    }

    private static func slot(_ nanos: UInt64) -> Int {
        if nanos < UInt64(parts) { return Int(nanos) }
        let exponent = 63 - nanos.leadingZeroBitCount
        let shift = exponent - partBits
        return (shift + 1) * parts + Int(nanos >> UInt64(shift)) - parts
    }

    private static func upperBound(_ slot: Int) -> TimeSpan {
        if slot < parts { return TimeSpan(nanos: Int64(slot)) }
        let shift = slot / parts - 1
        let lower = Int64(slot % parts + parts) << Int64(shift)
        return TimeSpan(nanos: lower + ((1 << Int64(shift)) - 1))
    }
}
