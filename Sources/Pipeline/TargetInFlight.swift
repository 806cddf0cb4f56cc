// One target of an event: an address, its attempts, and in the end exactly one outcome.

internal import Base
internal import EventLoop
internal import Gateways
internal import TokenIndex

/// Why a target's request was taken back before it was written.
internal enum Withdrawal {
    /// The look-up is too old; it has to be repeated first.
    case staleLookUp
    /// An operator has paused it while the request waited.
    case unwanted
    /// Its partition is another process's, which sends it.
    case lost
    /// The event expired while the request waited.
    case expired
}

/// What finally happened to a target, as its result tells it.
internal struct Settlement {
    var outcome: Outcome
    /// From the closed list; nil when the outcome says it all.
    var reason: Reason?
    var detail = ""
    /// The gateway's HTTP status; nil without an answer.
    var status: Int?
    /// The verdict on the token, which also leaves on `push.invalidations`.
    var tokenAction: TokenAction = .none
    /// The gateway's own time of a verdict.
    var gatewayTime: UnixMillis?
    /// Whether a misconfiguration could cause the verdict, so that the fuse counts it.
    var countsForFuse = false
}

/// One target in flight. Loop-confined; reused.
///
/// Its fields are not checked for exclusivity at run time: every stage touches several of them,
/// each access is one statement.
internal final class TargetInFlight: SlabResident {
    @exclusivity(unchecked) var slot = -1
    @exclusivity(unchecked) var event: EventInFlight?
    @exclusivity(unchecked) var address: DeviceAddress?
    /// Its place in the event's set of targets.
    @exclusivity(unchecked) var index = 0
    /// What was known of it when it was put off; nil for a target of a first fan-out.
    @exclusivity(unchecked) var former: PendingTarget?
    /// Set when it leaves through a retry topic and not with an outcome.
    @exclusivity(unchecked) var postponement: Postponement?
    /// Whether it has a turn in its event's line, or waits for one.
    @exclusivity(unchecked) var isOrdered = false
    /// The newer event for which it was not sent.
    @exclusivity(unchecked) var foldedInto: OrderedEvent?
    /// With how many at most it may share a request at Expo, itself counted, since it was in one that
    /// was refused; 0 for no bound.
    @exclusivity(unchecked) var expoShare = 0
    /// Whether it has a slot of its device, or needs none.
    @exclusivity(unchecked) var hasSlot = false
    /// Whether it has waited for one.
    @exclusivity(unchecked) var awaitedSlot = false
    /// How often it was put off without an attempt.
    @exclusivity(unchecked) var waits = 0
    @exclusivity(unchecked) var bulkhead: Bulkhead?
    /// Lent to the pool while a request is submitted.
    @exclusivity(unchecked) var request: OutboundRequest? = OutboundRequest()
    /// Whether the request that is lent to the pool may have been written.
    @exclusivity(unchecked) var mayBeWritten = false
    @exclusivity(unchecked) var messageID = UUIDBytes(high: 0, low: 0)
    @exclusivity(unchecked) var resultID = UUIDBytes(high: 0, low: 0)
    /// When the address was looked up last.
    @exclusivity(unchecked) var lookedUpAt = MonotonicTime(nanos: 0)
    /// Since when it waits for its bulkhead's budget.
    @exclusivity(unchecked) var waitsForRoomSince: MonotonicTime?
    /// Whether its answer decides whether the bulkhead's breaker closes.
    @exclusivity(unchecked) var isProbe = false
    /// Requests written so far.
    @exclusivity(unchecked) var attempts = 0
    /// Whether an answer was lost at least once: the device may have got the push twice.
    @exclusivity(unchecked) var wasAmbiguous = false
    /// Whether the one retry with a fresh credential was used.
    @exclusivity(unchecked) var refreshTried = false
    @exclusivity(unchecked) var withdrawal: Withdrawal?
    /// Since when it waits for an access token.
    @exclusivity(unchecked) var waitsForTokenSince: MonotonicTime?
    /// The credential of the present request: its generation and its birth.
    @exclusivity(unchecked) var credentialGeneration: UInt64 = 0
    @exclusivity(unchecked) var credentialBorn = MonotonicTime(nanos: 0)
    /// How many credentials its bulkhead had had when the present request was built.
    @exclusivity(unchecked) var credentialEpoch: UInt32 = 0
    /// Which VAPID key signed the present request, and how many were refused as not the
    /// subscription's before.
    @exclusivity(unchecked) var vapidKey = 0
    @exclusivity(unchecked) var vapidKeysRefused = 0
    @exclusivity(unchecked) var payloadBytes = 0
    /// By how many bytes its payload was too large; it gets a shorter body.
    @exclusivity(unchecked) var excessBytes = 0
    @exclusivity(unchecked) var notes = RenderingNotes()
    @exclusivity(unchecked) var firstSentAt: UnixMillis?
    @exclusivity(unchecked) var sentAt: UnixMillis?
    @exclusivity(unchecked) var settledAt = UnixMillis(0)
    /// Gateway's share of the last attempt: from HEADERS to the answer.
    @exclusivity(unchecked) var gatewayTime = TimeSpan.zero
    @exclusivity(unchecked) var settlement: Settlement?
    /// The gateway's ids of the message, as text.
    let gatewayID = ByteWriter(capacity: 96)
    let gatewayTraceID = ByteWriter(capacity: 64)
    /// Waits for the next attempt.
    @exclusivity(unchecked) var timer: LoopTimer?

    /// Whether the gateway may have it, and has not answered.
    var isOut: Bool { request == nil && mayBeWritten }

    func recycle() {
        event = nil
        address = nil
        former = nil
        postponement = nil
        isOrdered = false
        foldedInto = nil
        expoShare = 0
        hasSlot = false
        awaitedSlot = false
        waits = 0
        waitsForRoomSince = nil
        isProbe = false
        bulkhead = nil
        if request == nil { request = OutboundRequest() }
        mayBeWritten = false
        attempts = 0
        wasAmbiguous = false
        refreshTried = false
        withdrawal = nil
        waitsForTokenSince = nil
        vapidKeysRefused = 0
        payloadBytes = 0
        excessBytes = 0
        notes = []
        firstSentAt = nil
        sentAt = nil
        gatewayTime = .zero
        settlement = nil
        gatewayID.removeAll()
        gatewayTraceID.removeAll()
    }
}
