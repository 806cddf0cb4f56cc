// What other events of the same user do to an event: they are gathered with it, replace it, or make
// it superfluous.

public import Base
internal import Gateways
internal import Routes

extension Explanation {
    /// How an event and others of its user may become one push.
    public struct Folding: Sendable {
        /// What the pushes replace each other by at the gateways; nil when nothing replaces it.
        public let collapseID: String?
        /// The window in which its route gathers it with others; nil when it does not.
        public let window: TimeSpan?
        /// Whether the first event of a window is sent at once.
        public let sendsFirst: Bool
        /// Whether a window is too long for a lane and is waited for in a retry topic.
        public let waitsInTopic: Bool
        /// Why the window of its route is not for it.
        public let hindrance: String?
        /// For how long a copy of it is recognised and not sent; nil: never.
        public let copiesKnownFor: TimeSpan?
        /// Until when it waits because it says so.
        public let waitsUntil: UnixMillis?
    }
}

extension EventEnvelope {
    /// Why an event is in no window, although its route has one.
    func windowHindrance(at now: UnixMillis) -> String? {
        if collapseKey == nil { return "it has no collapse key" }
        if isOneAttempt { return "ttl 0: it must not be stored" }
        if isValidation { return "it is a rehearsal" }
        guard expiresAt - now > WindowLimits.beforeExpiry else { return "it expires too soon" }
        return nil
    }

    /// What others do to an event under a configuration.
    func folding(
        _ route: Route?, deduplicate: TimeSpan, at now: UnixMillis, scratch: ByteWriter
    ) -> Explanation.Folding {
        let coalescing = route?.coalescing
        let hindrance = coalescing == nil ? nil : windowHindrance(at: now)
        let window = hindrance == nil ? coalescing?.window : nil
        let collapseID = isValidation ? nil : collapseKey
        scratch.removeAll()
        if let collapseID { CollapseID.write(key: collapseID, to: scratch) }
        return Explanation.Folding(
            collapseID: collapseID == nil ? nil : scratch.text, window: window,
            sendsFirst: coalescing?.sendsFirst ?? false,
            waitsInTopic: window.map { $0 > WindowSpans(divisor: 1).longestInLane } ?? false,
            hindrance: hindrance,
            copiesKnownFor: deduplicate > .zero && hasOwnID && !isValidation ? deduplicate : nil,
            waitsUntil: notBefore.flatMap { $0 > now ? $0 : nil })
    }
}
