// How long the backlog of a lane takes, and what it is that takes so long. Pure: a lane looks at
// itself a few times a second and hands in what it saw.
//
// The rule, in this order; the first that holds names the bottleneck:
//
//   none        nothing waits to be read, or that has been so for less than five seconds
//   redis       look-ups are not answered, or make up half of all events in flight
//   kafka       the outbox is full: results are not taken as fast as they come
//   quota       requests wait for a bulkhead's budget: its configured bound, or a gateway that asks
//               for less (429, 503)
//   hot_key     one partition has four fifths of what waits while the lane has others, or a
//               partition is read no further because one of its events is open for long
//   gateway     every stream of a pool is in use and requests wait, and the lane has time to spare;
//               or the lane has as much in flight as it may have
//   partitions  the lanes are busy, and this process has one partition only: nobody can help
//   replicas    the lanes are busy: another replica would take partitions over
//   kafka       none of it: the lane has room and time, and the brokers hand over no more

internal import Base

/// What holds a lane back.
internal enum Bottleneck: String, CaseIterable, Sendable {
    case none, redis, kafka, quota, hotKey = "hot_key", gateway, partitions, replicas
}

/// What a lane is busy with, as it sees it itself.
internal struct LaneLoad: Sendable, Equatable {
    /// Partitions of the events topics.
    var partitions = 0
    /// Records there that were not read.
    var unread: Int64 = 0
    /// Those of the partition that has most of them.
    var unreadInHottest: Int64 = 0
    /// Partitions that are read no further because an event of theirs is open for long.
    var heldBack = 0
    /// How far the newest offset that was read is ahead of the oldest open one, at most.
    var offsetSpan: Int64 = 0
    /// Events in flight and their bound.
    var eventsInFlight = 0
    var eventsMax = 1
    /// Targets in flight and their bound.
    var targetsInFlight = 0
    var targetsMax = 1
    /// Events whose look-up was not answered.
    var lookUpsOpen = 0
    var isIndexReady = true
    var outboxHasRoom = true
    /// Requests that wait for their bulkhead's budget.
    var waitingForBudget = 0
    /// Pools with a request in every stream and others waiting.
    var fullPools = 0
    /// Time that the lane worked since it was made, and time that it waited for work.
    var busy = TimeSpan.zero
    var idle = TimeSpan.zero
    /// Events completed since the lane was made.
    var completed: Int64 = 0
    /// What comes of all that.
    var drain = DrainEstimate.Answer()
}

/// The recent past of one lane, and what it says about the backlog.
internal struct DrainEstimate {
    /// An estimate.
    struct Answer: Sendable, Equatable {
        /// Until everything unread is done, at the pace of the last half minute, if nothing is
        /// added; at most `secondsMax`.
        var seconds = 0.0
        var bottleneck = Bottleneck.none
    }

    private struct Sample {
        var at: MonotonicTime
        var completed: Int64
        var busy: TimeSpan
    }

    /// A backlog that does not move at all takes so long; an infinity is no number to scale by.
    static let secondsMax = 86_400.0

    private enum Limits {
        /// How much of the past counts.
        static let window = TimeSpan.seconds(30)
        /// A backlog younger than that is none: records are always on their way.
        static let youth = TimeSpan.seconds(5)
        static let sampleInterval = TimeSpan.seconds(1)
        static let busyShare = 0.8
        static let hotShare = 0.8
    }

    /// The past since there is a backlog, the oldest first.
    private var samples: [Sample] = []

    /// Takes a look in, at most a few a second, and tells what follows from it.
    mutating func take(_ load: LaneLoad, at now: MonotonicTime) -> Answer {
        guard load.unread > 0 else {
            samples.removeAll(keepingCapacity: true)
            return Answer()
        }
        let sample = Sample(at: now, completed: load.completed, busy: load.busy)
        if samples.last.map({ now - $0.at >= Limits.sampleInterval }) ?? true {
            samples.append(sample)
        }
        while samples.count > 2, now - samples[1].at >= Limits.window { samples.removeFirst() }
        let first = samples[0]
        let span = now - first.at
        guard span >= Limits.youth else { return Answer() }
        let rate = Double(load.completed - first.completed) / span.seconds
        let seconds = rate > 0 ? Double(load.unread) / rate : Self.secondsMax
        let busyShare = (load.busy - first.busy).seconds / span.seconds
        return Answer(
            seconds: min(seconds, Self.secondsMax),
            bottleneck: Self.bottleneck(of: load, busyShare: busyShare))
    }

    /// What holds a lane with a backlog back.
    static func bottleneck(of load: LaneLoad, busyShare: Double) -> Bottleneck {
        let lookUpsDominate = load.lookUpsOpen > 0 && load.lookUpsOpen * 2 >= load.eventsInFlight
        if !load.isIndexReady || (isFull(load) && lookUpsDominate) { return .redis }
        if !load.outboxHasRoom { return .kafka }
        if load.waitingForBudget > 0 { return .quota }
        let isHot =
            load.partitions > 1
            && Double(load.unreadInHottest) >= Double(load.unread) * Limits.hotShare
        if load.heldBack > 0 || isHot { return .hotKey }
        let isBusy = busyShare >= Limits.busyShare
        if !isBusy, load.fullPools > 0 || isFull(load) { return .gateway }
        guard isBusy else { return .kafka }
        return load.partitions <= 1 ? .partitions : .replicas
    }

    private static func isFull(_ load: LaneLoad) -> Bool {
        load.eventsInFlight >= load.eventsMax || load.targetsInFlight >= load.targetsMax
    }

    /// The estimate of a process: its slowest lane's, since no lane can take another's partitions.
    static func slowest(_ loads: [LaneLoad]) -> Answer {
        var answer = loads.map(\.drain).max { $0.seconds < $1.seconds } ?? Answer()
        // What one lane takes for the last partition may be one of several of the process.
        if answer.bottleneck == .partitions, loads.reduce(0, { $0 + $1.partitions }) > 1 {
            answer.bottleneck = .replicas
        }
        return answer
    }
}
