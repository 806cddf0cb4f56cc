// Between the group and the lanes: which lane owns which partition, and when all lanes have let
// go of what is leaving.

internal import Base
internal import Kafka
internal import Synchronization

/// Hands what the group decides to the lanes. Called on the group thread.
internal final class Assignments: AssignmentHandler {
    private struct State: Sendable {
        var owned: Set<Epoch> = []
        var membership = Membership.none
        var fatalError: String?
    }

    /// What the group's last word to this member was.
    private enum Membership: Sendable {
        /// It has not spoken yet.
        case none
        /// It gave partitions, were it none of them.
        case taken
        /// It took everything away and has not let the member in again.
        case lost
    }

    private let lanes: [LaneThread]
    private let alarms: AlarmLog
    private let state = Mutex(State())

    init(lanes: [LaneThread], alarms: AlarmLog) {
        self.lanes = lanes
        self.alarms = alarms
    }

    var count: Int { state.withLock { $0.owned.count } }
    /// Why nothing is read because of the group; nil while it counts this process in.
    var hindrance: String? {
        switch state.withLock({ $0.membership }) {
        case .none: "no partitions are assigned yet"
        case .taken: nil
        case .lost: "the group has taken all partitions away and gives none"
        }
    }
    var fatalError: String? { state.withLock { $0.fatalError } }

    func assigned(_ partitions: [PartitionAssignment]) {
        state.withLock {
            $0.owned.formUnion(partitions.map(\.epoch))
            $0.membership = .taken
            $0.fatalError = nil
        }
        alarms.assignment("partitions assigned", partitions.count)
        for partition in partitions { lane(of: partition).assign(partition) }
    }

    func revoked(_ partitions: [PartitionAssignment], ticket: RevokeTicket) {
        alarms.assignment("partitions revoked", partitions.count)
        state.withLock { $0.owned.subtract(partitions.map(\.epoch)) }
        let groups = Dictionary(grouping: partitions) { Int($0.place.partition) % lanes.count }
        guard !groups.isEmpty else { return ticket.finish() }
        let open = Atomic<Int>(groups.count)
        let countdown = Countdown(open) { ticket.finish() }
        for (lane, leaving) in groups {
            lanes[lane].revoke(Set(leaving.map(\.epoch)), deadline: ticket.deadline) {
                countdown.arrive()
            }
        }
    }

    func lost(_ partitions: [PartitionAssignment]) {
        alarms.assignment("partitions lost", partitions.count)
        state.withLock {
            $0.owned.subtract(partitions.map(\.epoch))
            // Whoever may not join again hears nothing more, and only retriable errors are told.
            if $0.owned.isEmpty { $0.membership = .lost }
        }
        let groups = Dictionary(grouping: partitions) { Int($0.place.partition) % lanes.count }
        for (lane, leaving) in groups { lanes[lane].forget(Set(leaving.map(\.epoch))) }
    }

    func groupError(_ error: KafkaError) {
        alarms.groupError(error)
        if error.isFatal { state.withLock { $0.fatalError = error.description } }
    }

    /// Equal partition numbers of several topics meet in one lane.
    private func lane(of partition: PartitionAssignment) -> LaneThread {
        lanes[Int(partition.place.partition) % lanes.count]
    }
}

/// Calls something once when a number of threads have arrived.
private final class Countdown: Sendable {
    private let open: Atomic<Int>
    private let done: @Sendable () -> Void

    init(_ open: consuming Atomic<Int>, _ done: @escaping @Sendable () -> Void) {
        self.open = open
        self.done = done
    }

    func arrive() {
        if open.subtract(1, ordering: .acquiringAndReleasing).newValue == 0 { done() }
    }
}
