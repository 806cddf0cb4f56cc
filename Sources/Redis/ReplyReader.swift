// hiredis' reader with our own object functions, which append to a `ReplyStorage`.

internal import Base
internal import CHiredis

/// Turns bytes into replies, one at a time.
internal final class ReplyReader {
    enum Result {
        /// `storage` holds a whole reply. Call `discard()` before the next one.
        case reply
        /// More bytes are needed.
        case incomplete
        /// The bytes are not the protocol; the reader is of no more use.
        case broken
    }

    let storage = ReplyStorage()
    private let reader: UnsafeMutablePointer<redisReader>

    init() {
        guard let reader = redisReaderCreateWithFunctions(Self.functions) else {
            preconditionFailure("no memory for a reply reader")
        }
        self.reader = reader
        // The storage outlives the reader: both belong to this object, and `deinit` frees the
        // reader before the storage is released.
        reader.pointee.privdata = Unmanaged.passUnretained(storage).toOpaque()
    }

    deinit { redisReaderFree(reader) }

    /// Bytes of an element that is not complete yet.
    var bufferedBytes: Int { reader.pointee.len - reader.pointee.pos }

    func feed(_ bytes: UnsafeRawBufferPointer) -> Bool {
        guard let start = bytes.baseAddress else { return true }
        return redisReaderFeed(reader, start.assumingMemoryBound(to: CChar.self), bytes.count)
            == REDIS_OK
    }

    func next() -> Result {
        var reply: UnsafeMutableRawPointer?
        guard redisReaderGetReply(reader, &reply) == REDIS_OK else { return .broken }
        return reply == nil ? .incomplete : .reply
    }

    func discard() { storage.truncate(to: 0) }

    /// One table for all readers, never freed. The functions hand hiredis a mark that stands for
    /// every object; nothing is ever read through it.
    private static nonisolated(unsafe) let functions = {
        let table = UnsafeMutablePointer<redisReplyObjectFunctions>.allocate(capacity: 1)
        table.initialize(
            to: redisReplyObjectFunctions(
                createString: { task, text, length in
                    let kind: RedisReply.Kind =
                        switch task?.pointee.type {
                        case REDIS_REPLY_ERROR: .error
                        case REDIS_REPLY_STATUS: .status
                        default: .text
                        }
                    return ReplyReader.append(task) {
                        $0.append(kind, text: UnsafeRawBufferPointer(start: text, count: length))
                    }
                },
                createArray: { task, count in
                    ReplyReader.append(task) {
                        $0.append(.init(kind: .array, count: count, value: 0))
                    }
                },
                createInteger: { task, value in
                    ReplyReader.append(task) {
                        $0.append(.init(kind: .integer, count: 0, value: value))
                    }
                },
                createNil: { task in
                    ReplyReader.append(task) {
                        $0.append(.init(kind: .none, count: 0, value: 0))
                    }
                },
                freeObject: { _ in }))
        return table
    }()

    private static func append(
        _ task: UnsafePointer<redisReadTask>?, _ body: (ReplyStorage) -> Void
    ) -> UnsafeMutableRawPointer? {
        guard let opaque = task?.pointee.privdata else { return nil }
        Unmanaged<ReplyStorage>.fromOpaque(opaque)._withUnsafeGuaranteedRef(body)
        return opaque
    }
}
