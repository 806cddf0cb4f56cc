// The three kinds of metric. Each object is one shard: a lane asks the registry for its own and
// is then the only writer; the registry adds the shards of a series up when somebody reads. So
// what only grows is counted by a load and a store, which a locked instruction would cost several
// times; the atomics are there for the readers.

public import Base
internal import Synchronization

/// A count that only grows.
public final class Counter: Sendable {
    private let total = Atomic<Int64>(0)

    internal init() {}

    /// Counts some occurrences. One thread counts; any may read.
    public func add(_ count: Int = 1) {
        total.store(total.load(ordering: .relaxed) &+ Int64(count), ordering: .relaxed)
    }

    /// What this shard has counted.
    public var value: Int64 { total.load(ordering: .relaxed) }
}

/// A number that goes up and down.
public final class Gauge: Sendable {
    private let current = Atomic<Int64>(0)

    internal init() {}

    /// Replaces the number.
    public func set(_ value: Int) { current.store(Int64(value), ordering: .relaxed) }

    /// Changes the number by some amount, which may be negative.
    public func add(_ change: Int) { current.wrappingAdd(Int64(change), ordering: .relaxed) }

    /// This shard's number.
    public var value: Int64 { current.load(ordering: .relaxed) }
}

/// Counts of observations by size.
public final class Histogram: Sendable {
    /// Upper bounds for latencies in seconds, from half a millisecond to half a minute.
    public static let latencyBuckets: [Double] = [
        0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30,
    ]

    internal let bounds: [Double]
    /// One count per bound and one for what is larger; this object owns the memory.
    private let counts: CountArray
    /// The bit pattern of the sum of all observations.
    private let sumBits = Atomic<UInt64>(0)

    internal init(bounds: [Double]) {
        self.bounds = bounds
        counts = CountArray(count: bounds.count + 1)
    }

    /// Counts one observation, in the metric's base unit. One thread observes; any may read.
    public func observe(_ value: Double) {
        var index = 0
        while index < bounds.count && value > bounds[index] { index += 1 }
        counts.increment(index)
        sumBits.store((sum + value).bitPattern, ordering: .relaxed)
    }

    /// Counts one observation of a time, in seconds.
    public func observe(_ span: TimeSpan) { observe(span.seconds) }

    internal func count(_ index: Int) -> Int64 { counts.value(index) }

    internal var sum: Double { Double(bitPattern: sumBits.load(ordering: .relaxed)) }
}

/// A fixed array of atomics, which `Array` cannot hold.
///
/// Unchecked because of the pointer, which never changes; all access to its target is atomic.
internal final class CountArray: @unchecked Sendable {
    private let base: UnsafeMutablePointer<Atomic<Int64>>
    private let count: Int

    init(count: Int) {
        self.count = count
        base = .allocate(capacity: count)
        for index in 0..<count { (base + index).initialize(to: Atomic(0)) }
    }

    deinit {
        base.deinitialize(count: count)
        base.deallocate()
    }

    func increment(_ index: Int) {
        precondition(index >= 0 && index < count)
        base[index].store(base[index].load(ordering: .relaxed) &+ 1, ordering: .relaxed)
    }

    func value(_ index: Int) -> Int64 {
        precondition(index >= 0 && index < count)
        return base[index].load(ordering: .relaxed)
    }
}
