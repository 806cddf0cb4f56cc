// Who gets whose push. The truth is compacted topics, `push.devices`, `push.invalidations` and,
// where there is one, `push.users`; what answers look-ups is a cache of them that a writer builds
// and can build again, in Redis or in memory, with the same behaviour.
//
// A reader belongs to one lane. An answer is a list of addresses or a fault: an error is never
// taken for a user without devices. While the store is away or incomplete a look-up waits inside
// the index, in a bounded list, and is repeated when the store is back; what a caller sees is
// only that the answer comes later, and `readiness` says why.

public import Base

/// A lane's view of the index; confined to the lane's loop.
public protocol TokenIndex: AnyObject {
    /// Where answers go. Set once, before the first look-up.
    var delegate: (any TokenIndexDelegate)? { get set }

    /// Whether look-ups are answered at once, and if not, why.
    var readiness: IndexReadiness { get }

    /// Asks for the addresses of a user. The answer goes to the delegate with the same tag,
    /// exactly once and never within this call; look-ups of one turn leave in one write.
    func lookUp(app: String, userID: String, tag: UInt64)

    /// Reads a note in a user's entry; nil when there is none, or its time is over. `done` is called
    /// on the loop, once; a fault says nothing about the note. `name` is of a fixed set or length.
    func readNote(
        _ name: String, app: String, userID: String,
        _ done: @escaping (Result<String?, IndexFault>) -> Void)

    /// Writes a note in a user's entry, over the last one of that name. What is asked of the user
    /// behind it is answered after it was written; one that cannot be written is lost.
    func writeNote(
        _ name: String, _ text: String, app: String, userID: String, keptFor span: TimeSpan)

    /// The fuses that have tripped, by what they guard, with their ids. At most a second old.
    var trippedFuses: [FuseName: String] { get }

    /// Counts answers of a gateway: verdicts are weighed against them.
    func count(answers: Int, for name: FuseName)

    /// Lets go of connections and timers. Look-ups that wait are not answered.
    func stop()
}

extension TokenIndex {
    /// Whether look-ups are answered at once.
    public var isReady: Bool { readiness == .ready }
}

/// Receives answers on the lane's loop.
public protocol TokenIndexDelegate: AnyObject {
    /// A look-up ended.
    func lookUpFinished(tag: UInt64, _ result: LookUpResult)
    /// `readiness` changed.
    func indexReadinessChanged()
}

/// The answer to a look-up.
public enum LookUpResult {
    /// The user's addresses that may be sent to, in the order of their ids, possibly none.
    ///
    /// `dropped` is how many older ones were left out because the user has more than
    /// `IndexLimits.addressesPerUser`. `at` is no later than the state of the index that the
    /// answer shows: an answer whose `at` is over a second ago has to be asked for again before a
    /// request is written. `user` is what the person said for all devices, if anything.
    case addresses(
        [DeviceAddress], dropped: Int, at: MonotonicTime, user: UserRecord? = nil)
    /// There is no answer. It says nothing about the user's devices.
    case unavailable(IndexFault)
}

/// Why a look-up has no answer.
public enum IndexFault: Error, Equatable, Sendable, CustomStringConvertible {
    /// As many look-ups as may wait are waiting already. Ask again later.
    case tooManyWaiting(limit: Int)
    /// The store gave no answer. Ask again later.
    case noAnswer(String)
    /// What is stored for this user cannot be read; other users are not affected.
    case unreadable(String)

    /// One line of text.
    public var description: String {
        switch self {
        case .tooManyWaiting(let limit): "\(limit) look-ups are waiting for the index already"
        case .noAnswer(let text): "the index gave no answer: \(text)"
        case .unreadable(let text): "this user's index entry cannot be read: \(text)"
        }
    }
}

/// Whether an index answers.
public enum IndexReadiness: Equatable, Sendable, CustomStringConvertible {
    /// Look-ups are answered at once.
    case ready
    /// There is no usable connection to the store.
    case disconnected(String)
    /// The store answers, but not everything the topics hold has been written to it.
    case incomplete(String)

    /// One line of text.
    public var description: String {
        switch self {
        case .ready: "ready"
        case .disconnected(let text): "the token index is not reachable: \(text)"
        case .incomplete(let text): "the token index is incomplete: \(text)"
        }
    }
}

/// The bounds of this room.
public enum IndexLimits {
    /// Addresses handed out per user; the newest by registration are kept.
    public static let addressesPerUser = 1_000
    /// Addresses kept per install.
    public static let addressesPerInstall = 256
    /// Look-ups of one reader that may be open, waiting for an answer or for the store.
    public static let lookUpsOpen = 8_192
    /// Addresses of a user that a look-up reads in one piece; what is over is read in pages, so
    /// that others need not wait for it.
    public static let entriesPerKey = 2_048
    /// Addresses in one page.
    public static let entriesPerPage = 200
    /// Times of records lie before this, in milliseconds since the epoch: in the year 5138.
    public static let timeEnd: Int64 = 100_000_000_000_000
    /// Bytes of one text field of a record.
    public static let fieldBytes = 4_096
    /// Elements of one list of a record.
    public static let listElements = 64
    /// Bytes of a whole record of any of the topics.
    public static let recordBytes = 64 << 10
    /// How long a removed address, a left token slot and an unlinked user entry are remembered,
    /// so that a late or repeated older record cannot bring them back.
    public static let tombstoneSpan = TimeSpan.hours(24)
    /// The number of buckets that keys are spread over. Part of the stored layout.
    public static let buckets = 1_024
    /// Changes that an index builder works on at once.
    public static let changesInFlight = 512
    /// Records that wait in front of an index builder.
    public static let recordsQueued = 8_192
    /// Their bytes; one batch may be over it.
    public static let bytesQueued = 32 << 20
    /// How often a reader that is not ready asks again.
    public static let readinessInterval = TimeSpan.milliseconds(200)
    /// How often the builder looks whether the markers it wrote are still there.
    public static let markerInterval = TimeSpan.seconds(1)
}
