// The targets of one event get the same payload save for the message's id, and those behind the
// same topic and environment the same request save for that and the token: both are written once
// and then copied.

internal import Base

/// What the first target of an event leaves for the others. Loop-confined and reusable.
///
/// Not checked for exclusivity at run time: each access is one statement.
public final class SharedRequest {
    /// The payload.
    internal let bytes = ByteWriter(capacity: 512)
    /// What the payload was written as; nil when there is none.
    @exclusivity(unchecked) internal private(set) var type: APNsPushType?
    @exclusivity(unchecked) internal private(set) var idOffset = 0
    @exclusivity(unchecked) internal private(set) var notes = RenderingNotes()

    /// What a request was written for: those for the same differ in token and message id only.
    internal struct Purpose {
        var renderer: ObjectIdentifier
        var environment: GatewayEnvironment
        var kind: AddressKind
        var topic: String?
        /// The credential's header field; the array is held so that its address names it.
        var authorization: [UInt8]?
    }

    /// The whole request without a path; as long as `purpose` says what it is for.
    internal let request = OutboundRequest()
    @exclusivity(unchecked) private var purpose: Purpose?
    /// Where in the field bytes the message's id stands.
    @exclusivity(unchecked) internal private(set) var idFieldOffset = 0

    /// Nothing yet.
    public init() {}

    /// Drops everything and keeps the memory: to be called before another event's first target.
    public func forget() {
        type = nil
        if purpose != nil { purpose = nil }
    }

    internal func keep(
        _ payload: UnsafeRawBufferPointer, as type: APNsPushType, idOffset: Int,
        _ notes: RenderingNotes
    ) {
        // A kept request has the former payload.
        purpose = nil
        bytes.removeAll()
        bytes.append(payload)
        self.type = type
        self.idOffset = idOffset
        self.notes = notes
    }

    /// Keeps a request whose body is the payload and whose path starts at `pathOffset` of the field
    /// bytes, behind everything else.
    internal func keep(
        _ request: OutboundRequest, for purpose: Purpose, idFieldOffset: Int, pathOffset: Int
    ) {
        self.request.copy(request)
        self.request.fieldBytes.truncate(to: pathOffset)
        self.idFieldOffset = idFieldOffset
        self.purpose = purpose
    }

    /// Whether a kept request serves this purpose too.
    internal func serves(
        _ renderer: AnyObject, _ target: borrowing PushTarget, _ authorization: ProviderToken?
    ) -> Bool {
        guard let purpose else { return false }
        return purpose.renderer == ObjectIdentifier(renderer)
            && purpose.environment == target.environment && purpose.kind == target.kind
            && purpose.topic == target.apnsTopic
            && purpose.authorization.isIdentical(to: authorization?.header)
    }
}

extension [UInt8]? {
    /// Whether both are the same array in memory, or none. Equal bytes elsewhere do not count: the
    /// answer is only used to save work.
    internal func isIdentical(to other: [UInt8]?) -> Bool {
        guard let self, let other else { return self == nil && other == nil }
        return self.withUnsafeBufferPointer { left in
            other.withUnsafeBufferPointer { right in
                left.baseAddress == right.baseAddress && left.count == right.count
            }
        }
    }
}
