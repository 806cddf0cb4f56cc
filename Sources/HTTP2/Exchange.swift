internal import Base

/// One request and what is known of its answer.
///
/// A slot: the pool makes as many as are ever in use at once, reuses them, and frees them only with
/// itself. That is why the links and nghttp2's stream user data may point here unretained.
final class Exchange {
    // The request, owned by the pool from submission to result.
    var request: OutboundRequest?
    var tag: UInt64 = 0
    /// The order of submission, kept when the request goes back to the queue.
    var sequence: UInt64 = 0
    var deadline = MonotonicTime.distantFuture
    var queuedAt = MonotonicTime(nanos: 0)
    var resends = 0
    /// Set while the request waits out a short delay before it may be written again.
    var notBefore = MonotonicTime(nanos: 0)

    // The attempt under way.
    var streamID: Int32 = 0
    /// Bytes its connection had serialised before this request: while no more than these have
    /// reached the socket, the peer cannot have seen it.
    var serialisedBefore: UInt64 = 0
    var sentAt = MonotonicTime(nanos: 0)
    var bodyOffset = 0

    // The answer.
    var status = 0
    var firstByteAt = MonotonicTime(nanos: 0)
    /// END_STREAM was seen: the answer is whole, whatever happens to the stream afterwards.
    var isComplete = false
    var isHeadComplete = false
    var isBodyTruncated = false
    var headBytes = 0
    let responseBody = ByteWriter(capacity: 256)
    private let kept = ByteWriter(capacity: 128)
    private var fields: [9 of KeptField] = .init(repeating: KeptField())

    // Links of the one list the exchange is in: the pool's queue or its connection's streams.
    unowned(unsafe) var next: Exchange?
    unowned(unsafe) var previous: Exchange?

    private struct KeptField {
        var offset: Int32 = 0
        var length: Int32 = -1
    }

    /// Whether all of the request has been serialised.
    var isBodySent: Bool { bodyOffset >= (request?.body.count ?? 0) }

    /// Prepares the slot for a new attempt; the request stays.
    func forgetAttempt() {
        streamID = 0
        bodyOffset = 0
        isComplete = false
        forgetHead()
    }

    /// Drops the head of an answer, as after an informational one.
    func forgetHead() {
        status = 0
        isHeadComplete = false
        isBodyTruncated = false
        headBytes = 0
        responseBody.removeAll()
        if kept.count > 0 {
            kept.removeAll()
            fields = .init(repeating: KeptField())
        }
    }

    /// Keeps the first value of a header field, cut to its limit.
    func keep(_ header: ResponseHeader, _ value: UnsafeRawBufferPointer) {
        guard fields[header.rawValue].length < 0 else { return }
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
        let room = Limits.responseBodyBytesMax - responseBody.count
        if bytes.count > room { isBodyTruncated = true }
        responseBody.append(UnsafeRawBufferPointer(rebasing: bytes.prefix(room)))
    }
}

/// A first-in, first-out list of exchanges, linked through the exchanges themselves: no allocation,
/// and removal from the middle costs nothing. Does not own them.
struct ExchangeList: ~Copyable {
    private unowned(unsafe) var head: Exchange?
    private unowned(unsafe) var tail: Exchange?
    private(set) var count = 0

    /// The oldest.
    var first: Exchange? { head }
    /// The newest.
    var last: Exchange? { tail }
    var isEmpty: Bool { count == 0 }

    mutating func append(_ exchange: Exchange) {
        exchange.previous = tail
        exchange.next = nil
        if let tail { tail.next = exchange } else { head = exchange }
        tail = exchange
        count += 1
    }

    /// Inserts by order of submission, looking from the front: what returns to the queue is older
    /// than what waits there.
    mutating func insertInOrder(_ exchange: Exchange) {
        var successor = head
        while let candidate = successor, candidate.sequence < exchange.sequence {
            successor = candidate.next
        }
        guard let successor else { return append(exchange) }
        exchange.next = successor
        exchange.previous = successor.previous
        if let previous = successor.previous { previous.next = exchange } else { head = exchange }
        successor.previous = exchange
        count += 1
    }

    mutating func remove(_ exchange: Exchange) {
        if let previous = exchange.previous {
            previous.next = exchange.next
        } else {
            head = exchange.next
        }
        if let next = exchange.next {
            next.previous = exchange.previous
        } else {
            tail = exchange.previous
        }
        exchange.next = nil
        exchange.previous = nil
        count -= 1
    }

    mutating func popFirst() -> Exchange? {
        guard let first = head else { return nil }
        remove(first)
        return first
    }
}
