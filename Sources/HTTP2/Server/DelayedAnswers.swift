internal import Base

/// Answers that wait for their moment: a binary heap by due time, first in first out among equals.
struct DelayedAnswers {
    struct Entry {
        let due: MonotonicTime
        let order: UInt64
        let stream: Int32
        let answer: Answer
    }

    enum Answer {
        case response(ServerResponse)
        case resets([UInt32])
    }

    private var heap: [Entry] = []
    private var pushed: UInt64 = 0

    /// When the first is due, or nil when none waits.
    var nextDue: MonotonicTime? { heap.first?.due }

    mutating func push(_ answer: Answer, stream: Int32, due: MonotonicTime) {
        heap.append(Entry(due: due, order: pushed, stream: stream, answer: answer))
        pushed += 1
        var child = heap.count - 1
        while child > 0 {
            let parent = (child - 1) / 2
            guard Self.isBefore(heap[child], heap[parent]) else { return }
            heap.swapAt(child, parent)
            child = parent
        }
    }

    /// Takes the first answer that is due at `now`.
    mutating func pop(at now: MonotonicTime) -> Entry? {
        guard let first = heap.first, first.due <= now else { return nil }
        let last = heap.removeLast()
        if heap.isEmpty { return first }
        heap[0] = last
        sink()
        return first
    }

    mutating func removeAll() { heap.removeAll() }

    private mutating func sink() {
        var parent = 0
        while true {
            var smallest = parent
            for child in [2 * parent + 1, 2 * parent + 2] where child < heap.count {
                if Self.isBefore(heap[child], heap[smallest]) { smallest = child }
            }
            if smallest == parent { return }
            heap.swapAt(parent, smallest)
            parent = smallest
        }
    }

    private static func isBefore(_ left: Entry, _ right: Entry) -> Bool {
        left.due == right.due ? left.order < right.order : left.due < right.due
    }
}
