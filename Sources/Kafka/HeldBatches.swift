// What the lanes have posted and no transaction has carried yet. Batches are held whole, in order;
// a transaction takes as many from the front as it may carry, and they stay until it is committed.

internal import Base

/// The batches of the committer in transactional mode. Confined to its thread.
struct HeldBatches {
    /// Posted and not part of a transaction yet, oldest first from `head` on.
    private var waiting: [OutboxBatch] = []
    private var head = 0
    /// Part of the transaction that is made now, or of the next one when that was aborted.
    private(set) var admitted: [OutboxBatch] = []
    private var admittedRecords = 0
    private var admittedBytes = 0
    /// How many batches were ever added, and how many of them are still held.
    private(set) var lastSequence: UInt64 = 0

    /// True when nothing is held.
    var isEmpty: Bool { admitted.isEmpty && head == waiting.count }

    /// The sequence number of the newest batch that is not held any more.
    var settledSequence: UInt64 {
        lastSequence - UInt64(admitted.count) - UInt64(waiting.count - head)
    }

    /// Holds a batch.
    mutating func add(_ batch: OutboxBatch) {
        lastSequence += 1
        waiting.append(batch)
    }

    /// Makes batches part of the next transaction, as far as its bounds allow; `admit` hears of
    /// each.
    mutating func admit(_ admit: (OutboxBatch) -> Void) {
        while head < waiting.count,
            admitted.isEmpty
                || admittedRecords < Limits.transactionRecords
                    && admittedBytes < Limits.transactionBytes
        {
            let batch = waiting[head]
            head += 1
            admitted.append(batch)
            admittedRecords += batch.recordCount
            admittedBytes += batch.byteCount
            admit(batch)
        }
        if head == waiting.count {
            waiting.removeAll(keepingCapacity: true)
            head = 0
        } else if head > 1_024 {
            waiting.removeFirst(head)
            head = 0
        }
    }

    /// Gives up what a committed transaction carried.
    mutating func release(_ release: (OutboxBatch) -> Void) {
        for batch in admitted { release(batch) }
        admitted.removeAll(keepingCapacity: true)
        admittedRecords = 0
        admittedBytes = 0
    }
}

extension OutboxBatch {
    /// Calls `body` with each longest run of records that belong to no event or to one for whose
    /// assignment `isWanted` is true.
    func forEachRun(where isWanted: (Epoch) -> Bool, _ body: (Range<Int>) -> Void) {
        var start = 0
        var end = 0
        while end < records.count {
            let event = records[end].event
            if event < 0 || isWanted(events[Int(event)].epoch) {
                end += event < 0 ? 1 : Int(events[Int(event)].records)
                continue
            }
            if start < end { body(start..<end) }
            end += Int(events[Int(event)].records)
            start = end
        }
        if start < end { body(start..<end) }
    }
}
