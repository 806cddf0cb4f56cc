// A producer for a few records whose fate somebody waits for: one event from the command line, the
// demo's source of events, what a test writes.

public import Base
internal import CRDKafka

/// Writes records and waits for their delivery. Confined to one thread.
public final class TopicProducer {
    /// One header.
    public struct Header: Sendable {
        /// The name.
        public var name: String
        /// The bytes; nil for a null value.
        public var value: [UInt8]?

        /// A header of that name.
        public init(_ name: String, _ value: [UInt8]?) {
            self.name = name
            self.value = value
        }

        /// A header with text.
        public init(_ name: String, _ text: String) { self.init(name, Array(text.utf8)) }
    }

    private let client: ClientHandle
    private let queue: ClientQueue
    private var inFlight = 0
    private var failure: KafkaError?
    private var lastPlace: (place: Int32, offset: Int64)?

    /// A producer with Bugle's defaults: idempotent, murmur2 partitioner.
    public init(
        _ configuration: KafkaConfiguration, producer: ProducerConfiguration = .init()
    ) throws(KafkaError) {
        let builder = ClientConfiguration(configuration)
        try builder.apply(producer.properties, fixed: producer.fixed)
        client = try builder.makeClient(
            RD_KAFKA_PRODUCER, events: RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR)
        queue = try ClientQueue.main(of: client)
    }

    deinit {
        // What nobody waited for is given up; destroying the client would wait for it otherwise.
        rd_kafka_purge(client.pointer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT)
    }

    /// Records handed over and not yet reported on, by what was heard until now.
    public var undelivered: Int {
        serve(.zero)
        return inFlight
    }

    /// Queues a record; the bytes are copied. Waits for room when the queue is full. `partition`
    /// nil lets the key decide; `timestampMillis` nil means now.
    public func send(
        to topic: String, partition: Int32? = nil, key: [UInt8]?, value: [UInt8]?,
        headers: [Header] = [], timestampMillis: Int64? = nil
    ) throws(KafkaError) {
        while true {
            let error = produce(
                topic, partition ?? RD_KAFKA_PARTITION_UA, key, value, headers,
                timestampMillis ?? 0)
            guard let error else { break }
            guard error.kind == .queueFull else { throw error }
            serve(.milliseconds(100))
        }
        inFlight += 1
        serve(.zero)
    }

    /// Waits until everything is delivered. Throws the first failure since the last flush, or a
    /// time-out.
    public func flush(timeout: TimeSpan) throws(KafkaError) {
        let deadline = SystemTime.shared.monotonic + timeout
        rd_kafka_flush(client.pointer, 0)  // ends the lingering of what is queued
        while inFlight > 0 {
            let left = deadline - SystemTime.shared.monotonic
            guard left > .zero else {
                throw failure
                    ?? KafkaError(
                        RD_KAFKA_RESP_ERR__TIMED_OUT, "\(inFlight) records are not delivered yet")
            }
            serve(min(left, .milliseconds(50)))
        }
        if let failure {
            self.failure = nil
            throw failure
        }
    }

    /// Writes one record and returns where it went.
    public func sendAndWait(
        to topic: String, partition: Int32? = nil, key: [UInt8]?, value: [UInt8]?,
        headers: [Header] = [], timeout: TimeSpan = .seconds(10)
    ) throws(KafkaError) -> (place: TopicPartition, offset: Int64) {
        try send(to: topic, partition: partition, key: key, value: value, headers: headers)
        try flush(timeout: timeout)
        return (TopicPartition(topic, lastPlace?.place ?? -1), lastPlace?.offset ?? -1)
    }

    private func serve(_ limit: TimeSpan) {
        var wait = limit
        while let event = queue.poll(wait) {
            wait = .zero
            switch rd_kafka_event_type(event) {
            case RD_KAFKA_EVENT_DR:
                while let message = rd_kafka_event_message_next(event) {
                    inFlight -= 1
                    lastPlace = (message.pointee.partition, message.pointee.offset)
                    if message.pointee.err != RD_KAFKA_RESP_ERR_NO_ERROR, failure == nil {
                        failure = KafkaError(message.pointee.err)
                    }
                }
            case RD_KAFKA_EVENT_ERROR:
                let error = client.error(of: event)
                if error.isFatal { failure = error }
            case RD_KAFKA_EVENT_LOG: client.forwardLog(event)
            default: break
            }
            rd_kafka_event_destroy(event)
        }
    }

    private func produce(
        _ topic: String, _ partition: Int32, _ key: [UInt8]?, _ value: [UInt8]?,
        _ headers: [Header], _ timestamp: Int64
    ) -> KafkaError? {
        // The client owns the headers once the call succeeded; on an error they stay ours.
        let list = headers.isEmpty ? nil : Self.headerList(headers)
        let error = topic.withCString { name in
            Self.withBytes(key) { key in
                Self.withBytes(value) { value in
                    ProduceCall(
                        topic: .name(name), partition: partition, key: key, value: value,
                        headers: list, timestamp: timestamp, opaque: nil,
                        flags: RD_KAFKA_MSG_F_COPY
                    ).run(on: client.pointer)
                }
            }
        }
        if error != nil, let list { rd_kafka_headers_destroy(list) }
        return error
    }

    private static func headerList(_ headers: [Header]) -> OpaquePointer? {
        guard let list = rd_kafka_headers_new(headers.count) else { return nil }
        for header in headers {
            withBytes(header.value) { bytes in
                _ = rd_kafka_header_add(
                    list, header.name, -1, bytes?.baseAddress, bytes?.count ?? 0)
            }
        }
        return list
    }

    /// An empty array is an empty value, not a null one: its pointer must not be null.
    private static func withBytes<Result>(
        _ bytes: [UInt8]?, _ body: (UnsafeRawBufferPointer?) -> Result
    ) -> Result {
        guard let bytes else { return body(nil) }
        guard bytes.isEmpty else { return bytes.withUnsafeBytes { body($0) } }
        return withUnsafeBytes(of: UInt8(0)) {
            body(UnsafeRawBufferPointer(rebasing: $0.prefix(0)))
        }
    }
}
