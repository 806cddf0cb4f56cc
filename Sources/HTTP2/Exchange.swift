internal import Base

/// One request and what is known of its answer.
///
/// A slot: the pool makes as many as are ever in use at once, reuses them, and frees them only with
/// itself. That is why the links and nghttp2's stream user data may point here unretained.
///
/// Its fields are not checked for exclusivity at run time: they are touched a few dozen times for
/// each request, each access is one statement, and nothing is called out to within one.
final class Exchange {
    // The request, owned by the pool from submission to result.
    @exclusivity(unchecked) var request: OutboundRequest?
    @exclusivity(unchecked) var tag: UInt64 = 0
    /// The order of submission, kept when the request goes back to the queue.
    @exclusivity(unchecked) var sequence: UInt64 = 0
    @exclusivity(unchecked) var deadline = MonotonicTime.distantFuture
    @exclusivity(unchecked) var queuedAt = MonotonicTime(nanos: 0)
    @exclusivity(unchecked) var resends = 0
    /// Set while the request waits out a short delay before it may be written again.
    @exclusivity(unchecked) var notBefore = MonotonicTime(nanos: 0)

    // The attempt under way.
    @exclusivity(unchecked) var streamID: Int32 = 0
    /// Bytes its connection had serialised before this request: while no more than these have
    /// reached the socket, the peer cannot have seen it.
    @exclusivity(unchecked) var serialisedBefore: UInt64 = 0
    @exclusivity(unchecked) var sentAt = MonotonicTime(nanos: 0)
    @exclusivity(unchecked) var bodyOffset = 0
    @exclusivity(unchecked) var bodyLength = 0

    // The answer.
    @exclusivity(unchecked) var status = 0
    @exclusivity(unchecked) var firstByteAt = MonotonicTime(nanos: 0)
    /// END_STREAM was seen: the answer is whole, whatever happens to the stream afterwards.
    @exclusivity(unchecked) var isComplete = false
    @exclusivity(unchecked) var isHeadComplete = false
    @exclusivity(unchecked) var isBodyTruncated = false
    @exclusivity(unchecked) var headBytes = 0
    @exclusivity(unchecked) private var hasBody = false
    let responseBody = ByteWriter(capacity: 256)
    private let kept = ByteWriter(capacity: 128)
    @exclusivity(unchecked) private var keepsFields = false
    @exclusivity(unchecked) private var fields: [12 of KeptField] = .init(repeating: KeptField())

    // Links of the one list the exchange is in: the pool's queue or its connection's streams.
    @exclusivity(unchecked) fileprivate(set) var nextLink: Unmanaged<Exchange>?
    @exclusivity(unchecked) fileprivate(set) var previousLink: Unmanaged<Exchange>?

    private struct KeptField {
        var offset: Int32 = 0
        var length: Int32 = -1
    }

    /// Whether all of the request has been serialised.
    var isBodySent: Bool { bodyOffset >= bodyLength }

    /// The one behind this in its list.
    var next: Exchange? { nextLink?.takeUnretainedValue() }
    /// The one before this in its list.
    var previous: Exchange? { previousLink?.takeUnretainedValue() }

    /// Prepares the slot for an attempt with a body of that length; the request stays.
    func forgetAttempt(bodyLength: Int) {
        streamID = 0
        bodyOffset = 0
        self.bodyLength = bodyLength
        isComplete = false
        forgetHead()
    }

    /// Drops the head of an answer, as after an informational one.
    func forgetHead() {
        status = 0
        isHeadComplete = false
        headBytes = 0
        if hasBody {
            hasBody = false
            isBodyTruncated = false
            responseBody.removeAll()
        }
        if keepsFields {
            keepsFields = false
            kept.removeAll()
            fields = .init(repeating: KeptField())
        }
    }

    /// Keeps the first value of a header field, cut to its limit.
    func keep(_ header: ResponseHeader, _ value: UnsafeRawBufferPointer) {
        guard fields[header.rawValue].length < 0 else { return }
        keepsFields = true
        let value = UnsafeRawBufferPointer(
            rebasing: value.prefix(Limits.responseFieldBytesMax))
        fields[header.rawValue] = KeptField(
            offset: Int32(kept.count), length: Int32(value.count))
        kept.append(value)
    }

    /// A kept header field; valid until the next change.
    func field(_ header: ResponseHeader) -> UnsafeRawBufferPointer? {
        let field = fields[header.rawValue]
        guard field.length >= 0 else { return nil }
        let start = Int(field.offset)
        return UnsafeRawBufferPointer(rebasing: kept.bytes[start..<start + Int(field.length)])
    }

    /// Keeps body bytes up to the limit.
    func appendBody(_ bytes: UnsafeRawBufferPointer) {
        hasBody = true
        let room = Limits.responseBodyBytesMax - responseBody.count
        if bytes.count > room { isBodyTruncated = true }
        responseBody.append(UnsafeRawBufferPointer(rebasing: bytes.prefix(room)))
    }
}

/// A first-in, first-out list of exchanges, linked through the exchanges themselves: no allocation,
/// and removal from the middle costs nothing. Does not own them.
struct ExchangeList: ~Copyable {
    private var head: Unmanaged<Exchange>?
    private var tail: Unmanaged<Exchange>?
    private(set) var count = 0

    /// The oldest.
    var first: Exchange? { head?.takeUnretainedValue() }
    /// The newest.
    var last: Exchange? { tail?.takeUnretainedValue() }
    var isEmpty: Bool { count == 0 }

    mutating func append(_ exchange: Exchange) {
        let link = Unmanaged.passUnretained(exchange)
        exchange.previousLink = tail
        exchange.nextLink = nil
        if let tail { tail._withUnsafeGuaranteedRef { $0.nextLink = link } } else { head = link }
        tail = link
        count += 1
    }

    /// Inserts by order of submission, looking from the front: what returns to the queue is older
    /// than what waits there.
    mutating func insertInOrder(_ exchange: Exchange) {
        var successor = first
        while let candidate = successor, candidate.sequence < exchange.sequence {
            successor = candidate.next
        }
        guard let successor else { return append(exchange) }
        let link = Unmanaged.passUnretained(exchange)
        exchange.nextLink = .passUnretained(successor)
        exchange.previousLink = successor.previousLink
        if let previous = successor.previous { previous.nextLink = link } else { head = link }
        successor.previousLink = link
        count += 1
    }

    mutating func remove(_ exchange: Exchange) {
        let next = exchange.nextLink
        let previous = exchange.previousLink
        if let previous {
            previous._withUnsafeGuaranteedRef { $0.nextLink = next }
        } else {
            head = next
        }
        if let next {
            next._withUnsafeGuaranteedRef { $0.previousLink = previous }
        } else {
            tail = previous
        }
        exchange.nextLink = nil
        exchange.previousLink = nil
        count -= 1
    }

    mutating func popFirst() -> Exchange? {
        guard let first else { return nil }
        remove(first)
        return first
    }
}
