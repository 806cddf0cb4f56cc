// How often people, devices and sources were served lately, counted for all replicas together.
//
// Four kinds of counts, each one script and one round trip:
//
// - A *place* is taken for each message that counts for a person: of the last so many hours, so
//   many. The message's id is kept, so that a retry, a repetition after a crash and an event that
//   comes back take no second one.
// - A *slot* of a device is the same for one address, with a queue of one: when none is free, the
//   newest message waits for the next one, if it lives that long, and those before it are done with.
// - A *lease* is some of the permits of a rate that all replicas share: what a project may send in a
//   second.
// - A *quota* counts in fixed windows, without ids: what is many needs little memory.
//
// Counts are no part of the index's truth. When a store loses them, somebody gets a few pushes more.

public import Base

/// What a place is taken in.
public struct UsageCap: Hashable, Sendable {
    /// What is capped: the same name is the same count. Of a fixed set, or bounded in length.
    public var name: String
    /// How many in how long.
    public var cap: Cap

    /// A cap with the name of what it counts.
    public init(_ name: String, _ cap: Cap) {
        self.name = name
        self.cap = cap
    }
}

/// A message that wants a device's slot.
public struct SlotRequest: Sendable {
    /// The message's id.
    public var id: UUIDBytes
    /// When its event was published: newer messages go before older ones.
    public var time: UnixMillis
    /// Its place in its partition, for those of one moment.
    public var offset: Int64
    /// Whether it has waited for a slot before: then a newer one stands in for it.
    public var hasWaited: Bool
    /// The last moment until which it can wait for a slot. When none is free by then, no older one
    /// is done with for its sake.
    public var patience: UnixMillis

    /// A message.
    public init(
        id: UUIDBytes, time: UnixMillis, offset: Int64, hasWaited: Bool, patience: UnixMillis
    ) {
        self.id = id
        self.time = time
        self.offset = offset
        self.hasWaited = hasWaited
        self.patience = patience
    }
}

/// Whether a message gets a device's slot.
public enum SlotAnswer: Equatable, Sendable {
    /// It has one.
    case taken
    /// The next one is free then, and it is the message that waits for it, if its patience lasts.
    case waits(until: UnixMillis)
    /// A newer one waits, or went out.
    case replaced
}

/// A part of a quota: so many in a window of fixed length.
public struct UsageQuota: Hashable, Sendable {
    /// What is counted.
    public var name: String
    /// How many in a window, and how long the windows are; they begin at the epoch.
    public var cap: Cap

    /// A quota with the name of what it counts.
    public init(_ name: String, _ cap: Cap) {
        self.name = name
        self.cap = cap
    }
}

/// What all replicas together may send in a second.
public struct SharedRate: Hashable, Sendable {
    /// Who is meant: the same name is the same rate.
    public var name: String
    /// Permits that come each second.
    public var perSecond: Int
    /// Permits that may be saved up.
    public var burst: Int
    /// How long the way up takes from nothing to the whole rate; up to a second is none. With a ramp
    /// there is a level, the rate of the moment, and half of its part of `burst` is saved up. It
    /// begins at what a second of the ramp brings, climbs while more is wanted than it gives, and
    /// falls as slowly while less is, or nothing.
    public var ramp: TimeSpan

    /// A rate with the name of its owner.
    public init(_ name: String, perSecond: Int, burst: Int, ramp: TimeSpan = .zero) {
        self.name = name
        self.perSecond = perSecond
        self.burst = burst
        self.ramp = ramp
    }
}

/// Why there is no count.
public enum UsageFault: Error, Equatable, Sendable {
    /// The store is away: ask again.
    case away(String)
    /// The store does not count: asking again does not help.
    case refused(String)
}

/// A lane's view of the counts; confined to the lane's loop. Every closure is called once, perhaps
/// within the call, unless the view is stopped first.
public protocol UsageCounters: AnyObject {
    /// Takes a place in each cap of a person, or in none; nil when it was taken, else the cap that
    /// is full. What has its place already is given it again.
    func takePlace(
        of id: UUIDBytes, in caps: [UsageCap], app: String, userID: String, at now: UnixMillis,
        _ done: @escaping (Result<UsageCap?, UsageFault>) -> Void)

    /// Gives places back that were not used after all. Not answered.
    func returnPlace(of id: UUIDBytes, in caps: [UsageCap], app: String, userID: String)

    /// Asks for a slot of a device.
    func takeSlot(
        _ request: SlotRequest, of addressID: String, _ cap: Cap, at now: UnixMillis,
        _ done: @escaping (Result<SlotAnswer, UsageFault>) -> Void)

    /// Gives a slot back that was not used after all. Not answered.
    func returnSlot(of id: UUIDBytes, of addressID: String)

    /// Counts one for a source in each quota, or in none; nil when it was counted, else the quota
    /// that is used up.
    func count(
        for source: String, in quotas: [UsageQuota], at now: UnixMillis,
        _ done: @escaping (Result<UsageQuota?, UsageFault>) -> Void)

    /// Whether other processes take from the same rates.
    var isShared: Bool { get }

    /// Leases permits of a rate: as many as there are of those that are wanted, perhaps none. What
    /// is not used within a second is lost.
    func lease(
        _ wanted: Int, of rate: SharedRate, at now: UnixMillis,
        _ done: @escaping (Result<Int, UsageFault>) -> Void)

    /// Lets go of connections.
    func stop()
}
