// A record as it lies in librdkafka's memory: read in place, copied only where it must outlive the
// batch it came with.

internal import CRDKafka

/// One consumed record, borrowed: every buffer it lends is valid only inside the body that received
/// it.
public struct KafkaRecord: ~Copyable {
    /// Whose clock a timestamp comes from.
    public enum TimestampKind: Sendable {
        /// Older message formats carry none.
        case none
        /// Set by the producer.
        case creation
        /// Set by the broker when it appended the record.
        case logAppend
    }

    private let message: UnsafePointer<rd_kafka_message_t>
    /// Where the record came from.
    public let place: TopicPartition

    init(_ message: UnsafePointer<rd_kafka_message_t>, at place: TopicPartition) {
        self.message = message
        self.place = place
    }

    /// The topic's name.
    public var topic: String { place.topic }

    /// The partition's number.
    public var partition: Int32 { place.partition }

    /// The offset in the partition.
    public var offset: Int64 { message.pointee.offset }

    /// Milliseconds since the epoch; nil when the record carries no timestamp.
    public var timestampMillis: Int64? {
        let value = rd_kafka_message_timestamp(message, nil)
        return value < 0 ? nil : value
    }

    /// Whose clock the timestamp comes from.
    public var timestampKind: TimestampKind {
        var kind = RD_KAFKA_TIMESTAMP_NOT_AVAILABLE
        _ = rd_kafka_message_timestamp(message, &kind)
        switch kind {
        case RD_KAFKA_TIMESTAMP_CREATE_TIME: return .creation
        case RD_KAFKA_TIMESTAMP_LOG_APPEND_TIME: return .logAppend
        default: return .none
        }
    }

    /// The key's bytes; nil when the record has no key.
    public var key: UnsafeRawBufferPointer? {
        guard let start = message.pointee.key else { return nil }
        return UnsafeRawBufferPointer(start: start, count: message.pointee.key_len)
    }

    /// The value's bytes; nil for a null value (a tombstone on a compacted topic).
    public var value: UnsafeRawBufferPointer? {
        guard let start = message.pointee.payload else { return nil }
        return UnsafeRawBufferPointer(start: start, count: message.pointee.len)
    }

    /// Calls `body` with each header's name and value, in order; a null value is nil.
    public func forEachHeader(
        _ body: (_ name: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer?) -> Void
    ) {
        var headers: OpaquePointer?
        guard rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR,
            let headers
        else { return }
        var index = 0
        var name: UnsafePointer<CChar>?
        var value: UnsafeRawPointer?
        var size = 0
        while rd_kafka_header_get_all(headers, index, &name, &value, &size)
            == RD_KAFKA_RESP_ERR_NO_ERROR
        {
            index += 1
            guard let name else { continue }
            var length = 0
            while name[length] != 0 { length += 1 }
            body(
                UnsafeRawBufferPointer(start: name, count: length),
                value.map { UnsafeRawBufferPointer(start: $0, count: size) })
        }
    }

    /// The last header of that name, as a value that `body` may read; nil when there is none.
    public func withHeader<Result>(
        _ name: StaticString, _ body: (UnsafeRawBufferPointer) -> Result
    ) -> Result? {
        var headers: OpaquePointer?
        guard rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR,
            let headers
        else { return nil }
        var value: UnsafeRawPointer?
        var size = 0
        let found = name.withUTF8Buffer { buffer in
            buffer.withMemoryRebound(to: CChar.self) {
                rd_kafka_header_get_last(headers, $0.baseAddress, &value, &size)
            }
        }
        guard found == RD_KAFKA_RESP_ERR_NO_ERROR, let value else { return nil }
        return body(UnsafeRawBufferPointer(start: value, count: size))
    }
}

/// What a partition queue delivered instead of a record.
public enum PartitionFault: Sendable, Equatable {
    /// Everything up to this offset was read.
    case endOfPartition(offset: Int64)
    /// The partition cannot be read; librdkafka goes on trying where that makes sense.
    case failed(KafkaError)

    init(_ message: UnsafePointer<rd_kafka_message_t>) {
        if message.pointee.err == RD_KAFKA_RESP_ERR__PARTITION_EOF {
            self = .endOfPartition(offset: message.pointee.offset)
        } else {
            let text = rd_kafka_message_errstr(message).map { String(cString: $0) }
            self = .failed(KafkaError(message.pointee.err, text))
        }
    }
}
