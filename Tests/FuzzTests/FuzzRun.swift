import Base
import Glibc
import Synchronization
import Testing

/// How long and from which seed the fuzzers run. `Tests/fuzz` sets both; in the test suite each
/// fuzzer makes a few thousand inputs.
struct FuzzRun {
    static let seed = number("BUGLE_FUZZ_SEED") ?? UInt64.random(in: .min ... .max)
    /// Seconds for each fuzzer; nil for the short form.
    static let seconds = number("BUGLE_FUZZ_SECONDS")
    /// Inputs of the short form.
    static let inputs = 3_000

    private static func number(_ name: String) -> UInt64? {
        getenv(name).flatMap { UInt64(String(cString: $0)) }
    }

    /// Feeds one fuzzer. `body` answers what is wrong with what came of an input, or nil.
    ///
    /// Input number n is made of the seed `seed + n`: a run with that seed begins with it. One that
    /// takes over two seconds of CPU counts as a hang; one that never ends is ended by the watch.
    static func feed(_ name: String, _ body: (inout SeededRandom) -> String?) {
        let watch = Watch(name)
        defer { watch.stop() }
        let began = SystemTime.shared.monotonic
        var count: UInt64 = 0
        var slowest = 0.0
        while goesOn(count, began) {
            let seed = Self.seed &+ count
            watch.now(seed)
            var random = SeededRandom(seed: seed)
            let start = cpuSeconds()
            let problem = body(&random)
            let taken = cpuSeconds() - start
            slowest = max(slowest, taken)
            if let problem {
                Issue.record("\(name): \(problem); seed \(seed)")
                return
            }
            if taken > 2 {
                Issue.record("\(name): one input took \(taken) s of CPU; seed \(seed)")
                return
            }
            count += 1
        }
        print(
            "fuzz \(name): \(count) inputs from seed \(Self.seed), the slowest "
                + "\(Int(slowest * 1_000_000)) us")
    }

    private static func goesOn(_ count: UInt64, _ began: MonotonicTime) -> Bool {
        guard let seconds else { return count < inputs }
        // The clock is asked once in a while.
        return count & 63 != 0
            || SystemTime.shared.monotonic - began < .seconds(Int64(seconds))
    }

    private static func cpuSeconds() -> Double {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return Double(time.tv_sec) + Double(time.tv_nsec) / 1e9
    }
}

/// Ends the process with the seed when one input is worked on for minutes.
private final class Watch: Sendable {
    private let seed = Atomic<UInt64>(0)
    private let isOver = Atomic<Bool>(false)
    private let name: String

    init(_ name: String) {
        self.name = name
        var thread = pthread_t()
        let context = Unmanaged.passRetained(self).toOpaque()
        pthread_create(
            &thread, nil,
            { context in
                guard let context else { return nil }
                Unmanaged<Watch>.fromOpaque(context).takeRetainedValue().look()
                return nil
            }, context)
        pthread_detach(thread)
    }

    func now(_ seed: UInt64) { self.seed.store(seed, ordering: .relaxed) }

    func stop() { isOver.store(true, ordering: .relaxed) }

    private func look() {
        var last: UInt64?
        var rounds = 0
        while !isOver.load(ordering: .relaxed) {
            poll(nil, 0, 1000)
            let current = seed.load(ordering: .relaxed)
            rounds = current == last ? rounds + 1 : 0
            last = current
            if rounds > 300 { fatalError("\(name): a hang; seed \(current)") }
        }
    }
}
