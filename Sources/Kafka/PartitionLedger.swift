// Which offsets of one assigned partition a lane is working on, and how far everything is done.
// Only offsets that were really read count: holes left by compaction or transaction markers are
// never waited for. The floor is the commit point as far as the lane is concerned.

/// The open and finished offsets of one partition: lane-confined, no C, no clock.
///
/// `begin` and `complete` are O(1) amortised; an offset behind holes costs one binary search.
public struct PartitionLedger: ~Copyable {
    /// Ring of begun offsets in rising order, `offset << 1 | finished`; the head is always open.
    private var ring: [Int64]
    private var head = 0
    private var count = 0
    private var highestBegun: Int64 = -1
    /// One past the highest offset that was ever completed with nothing open below it.
    private var settled: Int64?

    /// The number of offsets begun and not completed.
    public private(set) var openCount = 0

    /// What completing an offset means for those around it.
    public struct Completion: Sendable, Equatable {
        /// The completed offset.
        public let offset: Int64
        /// The lowest offset of the hole right below it; the offset itself where there is none.
        /// Nothing was ever read from the hole, and nothing will be.
        public let first: Int64
        /// The lowest incomplete offset after it.
        public let floor: Int64

        /// A completion.
        public init(offset: Int64, first: Int64? = nil, floor: Int64) {
            self.offset = offset
            self.first = first ?? offset
            self.floor = floor
        }
    }

    /// An empty ledger with room for `capacity` offsets before it grows.
    public init(capacity: Int = 256) {
        var size = 16
        while size < capacity { size *= 2 }
        ring = [Int64](repeating: 0, count: size)
    }

    /// The lowest incomplete offset; one past the highest completed when none is open; nil before
    /// anything was begun.
    public var floor: Int64? { count > 0 ? ring[head] >> 1 : settled }

    /// How far the newest begun offset is ahead of the oldest open one.
    public var span: Int64 { count > 0 ? highestBegun - (ring[head] >> 1) + 1 : 0 }

    /// The number of offsets kept: open ones and those finished behind an open one.
    public var retainedCount: Int { count }

    /// The newest offset that was begun; -1 before the first.
    public var newest: Int64 { highestBegun }

    /// Whether more may be begun: what is finished above the floor must fit the metadata of a
    /// commit.
    public var hasRoom: Bool { span < Limits.offsetWindow || count < Limits.offsetWindowEvents }

    /// Whether three quarters of that room are taken.
    public var isCrowded: Bool {
        span * 4 >= Limits.offsetWindow * 3 && count * 4 >= Limits.offsetWindowEvents * 3
    }

    /// The offset half way between the oldest open one and the newest.
    public var middle: Int64 { highestBegun - span / 2 }

    /// Notes that work on `offset` started. False when the offset is not above all begun before:
    /// such a record was seen already, or belongs to another log than those before.
    public mutating func begin(_ offset: Int64) -> Bool {
        guard offset > highestBegun else { return false }
        if count == ring.count { grow() }
        ring[(head + count) & (ring.count - 1)] = offset << 1
        count += 1
        openCount += 1
        highestBegun = offset
        return true
    }

    /// Notes that `offset` is done and returns what follows from it. Completing an offset twice, or
    /// one that was never begun, is a fault of the caller and stops the process.
    public mutating func complete(_ offset: Int64) -> Completion {
        guard let place = place(of: offset), ring[place] & 1 == 0 else {
            preconditionFailure("completed an offset that is not open")
        }
        ring[place] |= 1
        openCount -= 1
        let mask = ring.count - 1
        let first = place == head ? offset : (ring[(place + mask) & mask] >> 1) + 1
        while count > 0, ring[head] & 1 == 1 {
            settled = (ring[head] >> 1) + 1
            head = (head + 1) & mask
            count -= 1
        }
        return Completion(offset: offset, first: first, floor: floor ?? offset + 1)
    }

    /// True while `offset` is begun and not completed.
    public func isOpen(_ offset: Int64) -> Bool {
        guard let place = place(of: offset) else { return false }
        return ring[place] & 1 == 0
    }

    /// Offsets are mostly dense, so the distance to the head is tried before the search.
    private func place(of offset: Int64) -> Int? {
        guard count > 0 else { return nil }
        let mask = ring.count - 1
        let distance = offset - (ring[head] >> 1)
        guard distance >= 0 else { return nil }
        if distance < Int64(count) {
            let guess = (head + Int(distance)) & mask
            if ring[guess] >> 1 == offset { return guess }
        }
        // With holes an offset can only sit nearer to the head than its distance says.
        var low = 0
        var high = Int(min(distance, Int64(count - 1)))
        while low <= high {
            let middle = (low + high) / 2
            let found = ring[(head + middle) & mask] >> 1
            if found == offset { return (head + middle) & mask }
            if found < offset { low = middle + 1 } else { high = middle - 1 }
        }
        return nil
    }

    private mutating func grow() {
        var larger = [Int64](repeating: 0, count: ring.count * 2)
        for index in 0..<count { larger[index] = ring[(head + index) & (ring.count - 1)] }
        ring = larger
        head = 0
    }
}
