// Verdicts that a fuse has to count, while the topics are read from somewhere behind their end.
//
// What became of them stands further on: they were held, released, discarded, and in other
// partitions it may be read earlier or later. Counted as they come they would trip fuses that an
// operator settled long ago, and hold what was released. So they wait, and those that nothing
// followed are counted when everything has been read.

internal import Base

internal struct LateCount {
    private(set) var isReading = false
    private var records: [AddressID: (record: InvalidationRecord, position: TopicPosition)] = [:]

    /// Older ones are not part of any surge that a fuse could still hold.
    static let ageMax = TimeSpan.hours(24)

    /// The topics are read again. What waits stays: its place may be behind the new beginning.
    mutating func begin() { isReading = true }

    /// The topics have been read to their end; what is to be counted, in an order that does not
    /// depend on how they were read.
    mutating func end() -> [(record: InvalidationRecord, position: TopicPosition)] {
        isReading = false
        let found = records.values.sorted {
            ($0.position.timestamp, $0.record.addressID) < (
                $1.position.timestamp, $1.record.addressID
            )
        }
        records = [:]
        return found
    }

    /// Something later was said of the address.
    mutating func drop(_ id: AddressID) {
        if !records.isEmpty { records[id] = nil }
    }

    /// Sets a verdict aside; false when it is to be counted at once.
    mutating func setAside(
        _ record: InvalidationRecord, at position: TopicPosition, now: UnixMillis
    ) -> Bool {
        guard isReading else { return false }
        if now - UnixMillis(position.timestamp) <= Self.ageMax {
            records[record.addressID] = (record, position)
        }
        return true
    }
}
