// A lane and its thread as other threads see them.

internal import Base
internal import Crypto
internal import EventLoop
internal import Gateways
internal import HTTP2
internal import Kafka
internal import Routes
internal import Synchronization
internal import Telemetry
internal import TokenIndex

/// What a lane's thread builds its lane from.
internal struct LanePlan: Sendable {
    let number: Int
    let settings: LaneSettings
    let dispatcher: DispatcherSettings
    let apps: [PushApp]
    let committer: Committer
    let makeIndex: @Sendable (EventLoop) -> any TokenIndex
    var makeMarks: @Sendable (EventLoop) -> (any EventMarks)? = { _ in nil }
    var makeUsage: @Sendable (EventLoop) -> (any UsageCounters)? = { _ in nil }
    let registry: MetricsRegistry
    let misrouted: MisroutedCounters
    let alarms: AlarmLog
    let clock: ClockWatch
}

/// A lane's face towards other threads.
///
/// `@unchecked Sendable`: `lane` is set once on the lane's thread before `init` returns, and is
/// only touched by jobs that run there.
internal final class LaneThread: @unchecked Sendable {
    private let thread: LoopThread
    private let box: LaneBox

    init(_ plan: LanePlan) throws(DispatcherError) {
        let box = LaneBox()
        self.box = box
        do throws(SystemError) {
            thread = try LoopThread.start(name: "lane-\(plan.number)") { loop in
                box.build(plan, on: loop)
            }
        } catch {
            throw .system("a lane's thread: \(error)")
        }
        if let error = box.failure {
            thread.handle.stop()
            thread.join()
            throw .system(error)
        }
    }

    func assign(_ assignment: PartitionAssignment) {
        submit { $0.assign(assignment) }
    }

    func revoke(
        _ epochs: Set<Epoch>, deadline: MonotonicTime, whenDrained: @escaping @Sendable () -> Void
    ) {
        submit { $0.revoke(epochs, deadline: deadline, whenDrained: whenDrained) }
    }

    func forget(_ epochs: Set<Epoch>) { submit { $0.forget(epochs) } }

    /// Routes what is read from now on by another table; what is in flight keeps its route.
    /// Done when it returns, unless the lane has not turned for long.
    func replace(_ routes: RouteTable, configurationHash: String) {
        let replaced = Semaphore()
        submit { lane in
            lane.replace(routes, configurationHash: configurationHash)
            replaced.signal()
        }
        _ = replaced.wait(upTo: .seconds(2))
    }

    /// Holds back from now on what an operator asks for. Done when it returns, unless the lane has
    /// not turned for long; false then.
    func replace(_ levers: Levers) -> Bool {
        let replaced = Semaphore()
        submit { lane in
            lane.replace(levers)
            replaced.signal()
        }
        return replaced.wait(upTo: .seconds(2))
    }

    /// Sends what is built from now on with another credential of an app at a gateway. Done when it
    /// returns, unless the lane has not turned for long; returns why it was not done.
    func replaceCredential(of app: PushApp, at gateway: Gateway) -> String? {
        let replaced = Semaphore()
        let failure = ReplacementFailure()
        submit { lane in
            do throws(LaneBuildError) {
                try lane.replaceCredential(of: app, at: gateway)
            } catch {
                failure.text.withLock { $0 = error.text }
            }
            replaced.signal()
        }
        _ = replaced.wait(upTo: .seconds(2))
        return failure.text.withLock { $0 }
    }

    /// Reads no further record.
    func drain() {
        submit { lane in
            lane.isDraining = true
            lane.dropWindows()
        }
    }

    /// Remembers what was pushed and is committed by now, so that the next owner knows its copies;
    /// waits for the store no longer than until `deadline`.
    func setMarks(deadline: MonotonicTime) {
        let isSet = Semaphore()
        submit { lane in
            lane.setMarks()
            guard let duplicates = lane.duplicates else { return isSet.signal() }
            duplicates.whenSet { isSet.signal() }
        }
        _ = isSet.wait(upTo: max(deadline - SystemTime.shared.monotonic, .zero))
    }

    /// Closes connections and ends the thread. Returns how many events were open: what had no time
    /// to finish is done again by the next owner.
    func stop() -> Int {
        let open = OpenEvents()
        submit { lane in
            open.count.withLock { $0 = lane.events.inUse.count { !$0.isHandedOver } }
            lane.close()
        }
        thread.handle.stop()
        thread.join()
        return open.count.withLock { $0 }
    }

    /// When the loop turned last.
    var lastTurn: MonotonicTime { box.pulse.lastTurn }

    /// Records of this lane's partitions of the events topics that are not complete.
    var lag: Int64 { box.pulse.lag }

    /// The age of the oldest of them.
    var lagAge: TimeSpan { box.pulse.lagAge }

    /// What the lane is busy with, as of its last look.
    var load: LaneLoad { box.pulse.load }

    /// Why look-ups are not answered; nil when they are.
    var indexHindrance: String? { box.pulse.indexHindrance }

    /// Why partitions cannot be read; those that can are left out.
    var unreadablePartitions: [TopicPartition: String] { box.pulse.unreadablePartitions }

    /// A copy of the lane's latencies.
    func latency() -> LatencyHistogram {
        let copied = Semaphore()
        let copy = Mutex(LatencyHistogram())
        submit { lane in
            copy.withLock { $0 = lane.metrics.latency }
            copied.signal()
        }
        guard copied.wait(upTo: .seconds(2)) else { return LatencyHistogram() }
        return copy.withLock { $0 }
    }

    private func submit(_ job: @escaping @Sendable (Lane) -> Void) {
        thread.handle.submit { [box] in
            if let lane = box.lane { job(lane) }
        }
    }
}

/// Carries a number out of a lane that ends.
private final class OpenEvents: Sendable {
    let count = Mutex(0)
}

/// Carries out of a lane why a credential was not taken into use.
private final class ReplacementFailure: Sendable {
    let text = Mutex<String?>(nil)
}

/// What a lane says about itself without being asked; read by probes.
internal final class LanePulse: Sendable {
    private let turn = Atomic<Int64>(SystemTime.shared.monotonic.nanos)
    private let hindrance = Mutex<String?>("the token index was not asked yet")
    private let unreadable = Mutex<[TopicPartition: String]>([:])
    private let lagRecords = Atomic<Int64>(0)
    private let lagMillis = Atomic<Int64>(0)

    var lastTurn: MonotonicTime { MonotonicTime(nanos: turn.load(ordering: .relaxed)) }
    var lag: Int64 { lagRecords.load(ordering: .relaxed) }
    var lagAge: TimeSpan { .milliseconds(lagMillis.load(ordering: .relaxed)) }

    func note(lag: Int64, age: TimeSpan) {
        lagRecords.store(lag, ordering: .relaxed)
        lagMillis.store(max(age.millis, 0), ordering: .relaxed)
    }

    private let loadSeen = Mutex(LaneLoad())
    var load: LaneLoad { loadSeen.withLock { $0 } }
    func note(_ load: LaneLoad) { loadSeen.withLock { $0 = load } }

    var indexHindrance: String? { hindrance.withLock { $0 } }

    /// Why partitions cannot be read.
    var unreadablePartitions: [TopicPartition: String] { unreadable.withLock { $0 } }
    func note(_ place: TopicPartition, unreadable reason: String?) {
        unreadable.withLock { $0[place] = reason }
    }

    func beat(at now: MonotonicTime) { turn.store(now.nanos, ordering: .relaxed) }
    func note(indexHindrance text: String?) { hindrance.withLock { $0 = text } }
}

/// Holds the lane for its thread.
///
/// `@unchecked Sendable`: `lane` and `failure` are written on the lane's thread, `failure` before
/// `LoopThread.start` returns, which orders it before any read; `lane` is read on that thread
/// only.
private final class LaneBox: @unchecked Sendable {
    private(set) var lane: Lane?
    private(set) var failure: String?
    let pulse = LanePulse()

    func build(_ plan: LanePlan, on loop: EventLoop) {
        do throws(LaneBuildError) {
            lane = try LaneBuilder(plan, loop: loop).build(pulse)
        } catch {
            failure = error.text
        }
    }
}

/// Why a lane could not be built.
internal struct LaneBuildError: Error {
    let text: String
}
