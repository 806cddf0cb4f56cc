// The one owner of an `rd_kafka_t`. Whoever holds a queue, topic or message of it holds this object
// too, so that the client is destroyed last.

internal import Base
internal import CRDKafka

/// A client instance of librdkafka.
///
/// `@unchecked Sendable`: the pointer never changes and librdkafka's functions on it are
/// thread-safe; `rd_kafka_destroy` runs once, when the last reference is gone.
final class ClientHandle: @unchecked Sendable {
    let pointer: OpaquePointer
    private let log: (@Sendable (KafkaLogLine) -> Void)?

    /// What the client's callback writes to.
    private let failures: DeliveryFailures?

    init(
        _ pointer: OpaquePointer, log: (@Sendable (KafkaLogLine) -> Void)?,
        failures: DeliveryFailures? = nil
    ) {
        self.pointer = pointer
        self.log = log
        self.failures = failures
    }

    deinit {
        // A consumer that wants to leave its group was closed before; closing here could block for
        // ever on a rebalance that nobody answers.
        rd_kafka_destroy_flags(pointer, RD_KAFKA_DESTROY_F_NO_CONSUMER_CLOSE)
    }

    /// The fatal error that was raised on this instance, if any.
    var fatalError: KafkaError? {
        var text = [CChar](repeating: 0, count: Limits.errorTextBytes)
        let code = rd_kafka_fatal_error(pointer, &text, text.count)
        guard code != RD_KAFKA_RESP_ERR_NO_ERROR else { return nil }
        let sentence = String(
            decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        return KafkaError(code, sentence, isFatal: true)
    }

    /// The error an error event carries. A fatal one names only `_FATAL`; the cause is looked up.
    func error(of event: OpaquePointer) -> KafkaError {
        let code = rd_kafka_event_error(event)
        if code == RD_KAFKA_RESP_ERR__FATAL, let cause = fatalError { return cause }
        let text = rd_kafka_event_error_string(event).map { String(cString: $0) }
        return KafkaError(code, text, isFatal: rd_kafka_event_error_is_fatal(event) != 0)
    }

    /// Hands a log event to whoever wants log lines.
    func forwardLog(_ event: OpaquePointer) {
        if let log, let line = Self.line(of: event) { log(line) }
    }

    /// The line that a log event carries.
    static func line(of event: OpaquePointer) -> KafkaLogLine? {
        var facility: UnsafePointer<CChar>?
        var text: UnsafePointer<CChar>?
        var level: Int32 = 0
        guard rd_kafka_event_log(event, &facility, &text, &level) == 0 else { return nil }
        return KafkaLogLine(
            level: level, facility: facility.map { String(cString: $0) } ?? "",
            text: text.map { String(cString: $0) } ?? "")
    }
}

/// A queue of a client; returns its reference when it goes.
///
/// `@unchecked Sendable`: the pointer never changes and queue functions of librdkafka take the
/// queue's own lock.
final class ClientQueue: @unchecked Sendable {
    let pointer: OpaquePointer
    let client: ClientHandle

    init(_ pointer: OpaquePointer, of client: ClientHandle) {
        self.pointer = pointer
        self.client = client
    }

    /// A queue of its own, for answers or for a close.
    static func new(of client: ClientHandle) throws(KafkaError) -> ClientQueue {
        guard let queue = rd_kafka_queue_new(client.pointer) else {
            throw KafkaError(RD_KAFKA_RESP_ERR__FAIL)
        }
        return ClientQueue(queue, of: client)
    }

    /// The queue of everything that is not a message.
    static func main(of client: ClientHandle) throws(KafkaError) -> ClientQueue {
        guard let queue = rd_kafka_queue_get_main(client.pointer) else {
            throw KafkaError(RD_KAFKA_RESP_ERR__FAIL)
        }
        return ClientQueue(queue, of: client)
    }

    deinit { rd_kafka_queue_destroy(pointer) }

    /// The next event, which the caller destroys; nil when none came in time or on `wake`.
    func poll(_ limit: TimeSpan) -> OpaquePointer? {
        rd_kafka_queue_poll(pointer, Int32(clamping: limit.millis))
    }

    /// Makes the current or the next poll return at once; callable from any thread.
    func wake() { rd_kafka_queue_yield(pointer) }
}
