// The targets of one event get the same payload save for the message's id: it is written once and
// then copied.

internal import Base

/// What the first target of an event leaves for the others. Loop-confined and reusable.
public final class SharedPayload {
    internal let bytes = ByteWriter(capacity: 512)
    /// What the payload was written as; nil when there is none.
    @exclusivity(unchecked) internal private(set) var type: APNsPushType?
    @exclusivity(unchecked) internal private(set) var idOffset = 0
    @exclusivity(unchecked) internal private(set) var notes = RenderingNotes()

    /// Nothing yet.
    public init() {}

    /// Drops the payload and keeps the memory: to be called before another event's first target.
    public func forget() { type = nil }

    internal func keep(
        _ payload: UnsafeRawBufferPointer, as type: APNsPushType, idOffset: Int,
        _ notes: RenderingNotes
    ) {
        bytes.removeAll()
        bytes.append(payload)
        self.type = type
        self.idOffset = idOffset
        self.notes = notes
    }
}
