// Which of the records that were handed to the builder of the index is the oldest that is not applied.

/// Counts records in the order in which they were handed over. They are applied nearly in that order:
/// several are under way at a time.
internal struct UnappliedRecords {
    private struct Batch {
        /// Records handed over up to its end.
        var end: Int
        /// The timestamp of its first record.
        var timestamp: Int64
    }

    private var batches: [Batch] = []
    private var first = 0
    private var count = 0

    private static let compactAt = 1_024

    /// So many records were handed over; the first of them has that timestamp.
    mutating func handed(_ records: Int, from timestamp: Int64) {
        guard records > 0 else { return }
        count += records
        batches.append(Batch(end: count, timestamp: timestamp))
    }

    /// The timestamp of the oldest one while so many wait to be applied; nil when none do.
    mutating func oldest(waiting: Int) -> Int64? {
        while first < batches.count, batches[first].end <= count - waiting { first += 1 }
        if first >= Self.compactAt {
            batches.removeFirst(first)
            first = 0
        }
        return first < batches.count ? batches[first].timestamp : nil
    }
}
