// What every lane needs to know, fixed at start, and the bounds of this room.

internal import Base
internal import Kafka
internal import Routes

/// The settings of one lane. The totals are the lane's share of the process's.
internal struct LaneSettings: Sendable {
    var decoder: EventDecoder
    var retry: RetryPolicy
    /// Events in flight at which the lane reads no more.
    var eventsInFlight: Int
    /// Targets in flight at which the lane reads no more.
    var targetsInFlight: Int
    /// Bytes of records in flight at which the lane reads no more.
    var recordBytes: Int
    /// Bytes of events in windows at which the lane reads no more; windows end early before that.
    var windowBytes: Int
    /// Partitions per topic at the start: for noticing producers that partition differently, and
    /// partitions that came later.
    var partitionCounts: [String: Int32]
    /// The class of each events topic.
    var classes: [String: EventClass]
    /// The routes at the start.
    var routes: RouteTable
    /// What an operator holds back at the start.
    var levers: Levers
    /// The notification of events without content of their own: title and body.
    var defaultTitle: String?
    var defaultBody: String?
    var resultsTopic: OutputTopic
    var invalidationsTopic: OutputTopic
    var deadLettersTopic: OutputTopic
    var receiptsTopic: OutputTopic
    var ticketsTopic: OutputTopic
    /// From a message of Expo's to the question for its receipt, and between two questions.
    var receiptWait: TimeSpan
    /// A ticket that is older is asked about no more.
    var receiptAgeMax: TimeSpan
    var waitingTopics: WaitingTopics
    var tiers: RetryTiers
    var windowSpans: WindowSpans
    /// Dead letters keep the number of a partition below this; zero when their topic has fewer
    /// partitions than the events topics.
    var deadLetterPartitions: Int32
    var group: String
    var configurationHash: String
    var replica: String

    /// Through which gateway an install is reached that could be reached through several.
    var gatewayPreference: [Gateway]
    /// A look-up older than this is repeated before a request is written.
    var lookUpAge: TimeSpan
    /// For how long copies of an event are recognised; zero: never, replays excepted.
    var deduplicate = TimeSpan.zero
    /// Where traced events go; nil where none are exported.
    var traces: TraceQueue?
    /// The sample of pushes whose acknowledgements are counted; nil where there are none.
    var acks: AckSample?
    /// How long after a look-up without an answer it is asked again.
    let lookUpRetryInterval = TimeSpan.milliseconds(200)
    /// The shortest time between a lost answer of FCM and the next attempt (vendor rule).
    let fcmFailureWait = TimeSpan.seconds(10)
    /// How long a target waits for its bulkhead's budget before it is parked.
    let roomPatience = TimeSpan.seconds(2)
    /// How long after the last answer to it an app counts as one that sends, and how long after its
    /// last parked event as one that has some of its own in a parking topic.
    let atWork = TimeSpan.minutes(1)
    let atWorkAfterParking = TimeSpan.minutes(10)
    /// After so long without room and without an answer a bulkhead stands still, and nobody waits
    /// for it any more.
    let stillness = TimeSpan.seconds(1)
    /// The shortest time between two parked events that go and see whether a gateway answers.
    let probeInterval = TimeSpan.seconds(1)
    /// How often the lane looks after what is parked and what waits for room.
    let parkingInterval = TimeSpan.milliseconds(50)
    /// The shortest time between two replacements of a bulkhead's connections.
    let replaceInterval = TimeSpan.seconds(30)
    /// Records read in one turn: some two milliseconds of work, so that answers and timers are not
    /// kept waiting for longer.
    let recordsPerTurn = 64
    /// How soon the lane looks again whether windows that are due have room.
    let windowInterval = TimeSpan.milliseconds(5)
    /// How often a lane looks for records without being woken.
    let idleReadInterval = TimeSpan.milliseconds(500)
    /// How often a lane without room looks whether there is some.
    let busyReadInterval = TimeSpan.milliseconds(5)
    /// For how long a bulkhead rests when APNs has seen too many provider tokens.
    var tokenUpdatesWait: TimeSpan
    /// How long a push service has had no request before it makes room for another one.
    var serviceIdleMin: TimeSpan
    /// How long a target waits for a stream or a token before it is put off.
    var streamPatience: TimeSpan
    /// The longest `not_before` that is waited for in a lane by an event that must not be stored.
    static let longestHold = TimeSpan.seconds(30)

    /// The partition of a dead letter of an event of `partition`; nil lets its key decide. The
    /// number may come out of a header, and then be any.
    func deadLetterPartition(of partition: Int32) -> Int32? {
        (0..<deadLetterPartitions).contains(partition) ? partition : nil
    }

    /// Whether what is written beside a partition has a partition of its number. One that was added
    /// to an input topic later has none in the others, as far as this process knows.
    func isKnown(_ place: TopicPartition) -> Bool {
        partitionCounts[place.topic].map { place.partition < $0 } ?? true
    }
}
