// Offsets that are finished although an earlier one is not, as runs of neighbours. Completion is
// mostly in order, so a partition has few runs however many offsets they cover.

/// A set of offsets of one partition, kept as sorted runs with holes between them.
///
/// `insert` at the upper end is O(1), elsewhere O(log runs) to find the place and O(runs) to make
/// room.
public struct OffsetRuns: Sendable, Equatable {
    /// Neighbouring offsets, `first` to `end - 1`.
    struct Run: Sendable, Equatable {
        var first: Int64
        var end: Int64
    }

    private(set) var runs: [Run] = []

    /// An empty set.
    public init() {}

    /// True when no offset is in it.
    public var isEmpty: Bool { runs.isEmpty }

    /// One past the highest offset in it; nil when it is empty.
    public var end: Int64? { runs.last?.end }

    /// The number of offsets in it.
    public var count: Int64 { runs.reduce(0) { $0 + $1.end - $1.first } }

    /// True when `offset` is in it.
    public func contains(_ offset: Int64) -> Bool {
        let index = firstRun(endingAfter: offset)
        return index < runs.count && runs[index].first <= offset
    }

    /// Adds the offsets from `first` to `end - 1`. False when they were all in it.
    @discardableResult
    public mutating func insert(_ first: Int64, upTo end: Int64) -> Bool {
        guard first < end else { return false }
        guard let last = runs.last, first <= last.end else {
            runs.append(Run(first: first, end: end))
            return true
        }
        if first == last.end {
            runs[runs.count - 1].end = end
            return true
        }
        // Every run that touches the new one becomes part of it.
        let low = firstRun(endingAfter: first - 1)
        var high = low
        var merged = Run(first: first, end: end)
        while high < runs.count, runs[high].first <= end {
            merged.first = min(merged.first, runs[high].first)
            merged.end = max(merged.end, runs[high].end)
            high += 1
        }
        if high == low + 1 {
            guard runs[low] != merged else { return false }
            runs[low] = merged
        } else {
            runs.replaceSubrange(low..<high, with: CollectionOfOne(merged))
        }
        return true
    }

    /// Adds all offsets of another set.
    public mutating func formUnion(_ other: OffsetRuns) {
        for run in other.runs { insert(run.first, upTo: run.end) }
    }

    /// Takes out every offset below `offset`.
    public mutating func removeBelow(_ offset: Int64) {
        guard let lowest = runs.first, lowest.first < offset else { return }
        let kept = firstRun(endingAfter: offset)
        if kept > 0 { runs.removeFirst(kept) }
        if let head = runs.first, head.first < offset { runs[0].first = offset }
    }

    /// The lowest run that reaches beyond `offset`.
    private func firstRun(endingAfter offset: Int64) -> Int {
        var low = 0
        var high = runs.count
        while low < high {
            let middle = (low + high) / 2
            if runs[middle].end > offset { high = middle } else { low = middle + 1 }
        }
        return low
    }
}
