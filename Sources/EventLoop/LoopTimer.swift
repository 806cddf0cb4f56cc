// Timers: a binary heap ordered by due time. Each timer knows its place, so that moving and
// cancelling cost O(log n) and no search.

internal import Base

/// Something that happens later on a loop. Owned by its creator, reusable.
public final class LoopTimer {
    internal let action: () -> Void
    internal var due = MonotonicTime(nanos: 0)
    /// Breaks ties: timers of the same time fire in the order they were scheduled.
    internal var order: UInt64 = 0
    internal var position = -1

    /// A timer that runs `action` on the loop's thread when it fires.
    public init(_ action: @escaping () -> Void) { self.action = action }

    /// Whether the timer waits in a loop.
    public var isScheduled: Bool { position >= 0 }
}

internal struct TimerHeap {
    private var heap: [LoopTimer] = []
    private var scheduled: UInt64 = 0

    var next: MonotonicTime? { heap.first?.due }

    mutating func schedule(_ timer: LoopTimer, at time: MonotonicTime) {
        cancel(timer)
        scheduled += 1
        timer.due = time
        timer.order = scheduled
        timer.position = heap.count
        heap.append(timer)
        siftUp(heap.count - 1)
    }

    mutating func cancel(_ timer: LoopTimer) {
        let position = timer.position
        guard position >= 0 else { return }
        precondition(position < heap.count && heap[position] === timer, "a timer of another loop")
        timer.position = -1
        let last = heap.removeLast()
        guard last !== timer else { return }
        heap[position] = last
        last.position = position
        siftUp(position)
        siftDown(last.position)
    }

    /// The order of the timer scheduled last.
    var newest: UInt64 { scheduled }

    /// Takes out the first timer that is due and was not scheduled after `newest`. The caller fires
    /// it, for its action may schedule others.
    mutating func popDue(at now: MonotonicTime, newest: UInt64) -> LoopTimer? {
        guard let timer = heap.first, timer.due <= now, timer.order <= newest else { return nil }
        cancel(timer)
        return timer
    }

    private func precedes(_ left: LoopTimer, _ right: LoopTimer) -> Bool {
        left.due == right.due ? left.order < right.order : left.due < right.due
    }

    private mutating func siftUp(_ start: Int) {
        var child = start
        while child > 0 {
            let parent = (child - 1) / 2
            guard precedes(heap[child], heap[parent]) else { return }
            exchange(child, parent)
            child = parent
        }
    }

    private mutating func siftDown(_ start: Int) {
        var parent = start
        while true {
            var least = parent
            for child in [2 * parent + 1, 2 * parent + 2]
            where child < heap.count && precedes(heap[child], heap[least]) {
                least = child
            }
            guard least != parent else { return }
            exchange(parent, least)
            parent = least
        }
    }

    private mutating func exchange(_ left: Int, _ right: Int) {
        heap.swapAt(left, right)
        heap[left].position = left
        heap[right].position = right
    }
}
