// The producer of librdkafka as the committer uses it: whole runs of records in one call, values
// left where they lie, delivery reports as events that name a record by a plain number.

internal import Base
internal import CRDKafka

/// Names a record of a batch in flight: the batch's slot and the record's index. Its number travels
/// as the opaque of librdkafka, one higher because null would mean none.
struct RecordReference: Equatable {
    var slot: Int
    var index: Int

    init(slot: Int, index: Int) {
        self.slot = slot
        self.index = index
    }

    init(opaque: UnsafeMutableRawPointer?) {
        let number = UInt(bitPattern: opaque) - 1
        slot = Int(number >> Limits.batchRecordBits)
        index = Int(number & (1 << Limits.batchRecordBits - 1))
    }

    var opaque: UnsafeMutableRawPointer? {
        UnsafeMutableRawPointer(
            bitPattern: UInt(slot) << Limits.batchRecordBits + UInt(index) + 1)
    }
}

/// One producer instance. Confined to the committer's thread, save for waking its queue.
final class RecordProducer {
    /// What an event of the producer's queue says.
    enum Report {
        case delivered(RecordReference)
        case failed(RecordReference, rd_kafka_resp_err_t)
        case error(KafkaError)
    }

    /// The result of handing records over.
    enum Refusal {
        case queueFull
        case fatal(KafkaError)
        case record(KafkaError)
    }

    let queue: ClientQueue
    /// Records the instance may hold at once.
    let capacity: Int
    let client: ClientHandle
    /// Of a transactional producer, which tells only of what failed.
    let failures: DeliveryFailures?
    private let topics: [OpaquePointer]
    private let messages: UnsafeMutablePointer<rd_kafka_message_t>

    init(
        _ configuration: KafkaConfiguration, _ settings: ProducerConfiguration, topics: [String],
        transactions: TransactionNames? = nil
    ) throws(KafkaError) {
        let builder = ClientConfiguration(configuration)
        try builder.apply(
            settings.properties, fixed: settings.fixed + (transactions?.fixed ?? []))
        failures = transactions.map { _ in DeliveryFailures() }
        client = try builder.makeClient(
            RD_KAFKA_PRODUCER,
            events: RD_KAFKA_EVENT_ERROR | (transactions == nil ? RD_KAFKA_EVENT_DR : 0),
            failures: failures)
        queue = try ClientQueue.main(of: client)
        let records =
            configuration.properties["queue.buffering.max.messages"].flatMap { Int($0) }
            ?? settings.queueRecords
        // To librdkafka zero says that there is no bound.
        capacity = records > 0 ? records : .max
        var handles: [OpaquePointer] = []
        for topic in topics {
            guard let handle = rd_kafka_topic_new(client.pointer, topic, nil) else {
                let code = rd_kafka_last_error()
                for handle in handles { rd_kafka_topic_destroy(handle) }
                throw KafkaError(code, "topic \(topic)")
            }
            handles.append(handle)
        }
        self.topics = handles
        messages = .allocate(capacity: Limits.produceChunkRecords)
        messages.initialize(
            repeating: rd_kafka_message_t(), count: Limits.produceChunkRecords)
    }

    deinit {
        // Whatever is still inside refers to memory of batches: it must go before they do.
        rd_kafka_purge(client.pointer, RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT)
        for topic in topics { rd_kafka_topic_destroy(topic) }
        messages.deallocate()
    }

    /// Asks for the leaders of all output topics. Without it the first record of a topic may wait
    /// a second for them.
    func warmUp(_ timeout: TimeSpan) -> KafkaError? {
        var metadata: UnsafePointer<rd_kafka_metadata>?
        let code = rd_kafka_metadata(
            client.pointer, 0, nil, &metadata, Int32(clamping: timeout.millis))
        guard code == RD_KAFKA_RESP_ERR_NO_ERROR, let metadata else { return KafkaError(code) }
        rd_kafka_metadata_destroy(metadata)
        return nil
    }

    /// Hands over records of one batch from `first` on, up to `limit`: one run of equal topic in a
    /// single call, or one record with headers. Returns how many were tried.
    func produce(
        _ batch: OutboxBatch, slot: Int, from first: Int, limit: Int,
        refused: (Int, Refusal) -> Void
    ) -> Int {
        let topic = batch.records[first].topic
        if batch.records[first].headerCount > 0 {
            if let refusal = produceWithHeaders(batch, slot: slot, index: first) {
                refused(first, refusal)
            }
            return 1
        }
        let most = min(limit, Limits.produceChunkRecords, batch.records.count - first)
        var count = 0
        while count < most {
            let record = batch.records[first + count]
            guard record.topic == topic, record.headerCount == 0 else { break }
            fill(&messages[count], from: record, of: batch)
            messages[count]._private = RecordReference(slot: slot, index: first + count).opaque
            count += 1
        }
        let queued = rd_kafka_produce_batch(
            topics[Int(topic)], RD_KAFKA_PARTITION_UA, RD_KAFKA_MSG_F_PARTITION, messages,
            Int32(count))
        guard Int(queued) < count else { return count }
        for index in 0..<count where messages[index].err != RD_KAFKA_RESP_ERR_NO_ERROR {
            refused(first + index, refusal(KafkaError(messages[index].err)))
        }
        return count
    }

    /// Serves the queue: waits up to `wait` for a first event, then takes what else is there.
    func serve(_ wait: TimeSpan, _ report: (Report) -> Void) {
        var wait = wait
        for _ in 0..<Limits.eventsPerTurn {
            guard let event = queue.poll(wait) else { return }
            wait = .zero
            switch rd_kafka_event_type(event) {
            case RD_KAFKA_EVENT_DR:
                while let message = rd_kafka_event_message_next(event) {
                    let reference = RecordReference(opaque: message.pointee._private)
                    let code = message.pointee.err
                    report(
                        code == RD_KAFKA_RESP_ERR_NO_ERROR
                            ? .delivered(reference) : .failed(reference, code))
                }
            case RD_KAFKA_EVENT_ERROR: report(.error(client.error(of: event)))
            case RD_KAFKA_EVENT_LOG: client.forwardLog(event)
            default: break
            }
            rd_kafka_event_destroy(event)
        }
    }

    /// The fatal error of the instance, if it has one.
    var fatalError: KafkaError? { client.fatalError }

    /// Makes every record inside come back with a report, those on the wire included.
    func purge() {
        rd_kafka_purge(
            client.pointer,
            RD_KAFKA_PURGE_F_QUEUE | RD_KAFKA_PURGE_F_INFLIGHT | RD_KAFKA_PURGE_F_NON_BLOCKING)
    }

    /// Values stay in the batch's arena: neither the copy nor the free flag is set. Keys are
    /// copied by librdkafka in any case.
    private func fill(
        _ message: inout rd_kafka_message_t, from record: OutboxBatch.Record, of batch: OutboxBatch
    ) {
        let key = batch.memory(of: record.key)
        let value = batch.memory(of: record.value)
        message.err = RD_KAFKA_RESP_ERR_NO_ERROR
        message.partition = record.partition
        message.key = UnsafeMutableRawPointer(mutating: key?.baseAddress)
        message.key_len = key?.count ?? 0
        message.payload = UnsafeMutableRawPointer(mutating: value?.baseAddress)
        message.len = value?.count ?? 0
    }

    private func produceWithHeaders(_ batch: OutboxBatch, slot: Int, index: Int) -> Refusal? {
        let record = batch.records[index]
        guard let list = rd_kafka_headers_new(Int(record.headerCount)) else { return .queueFull }
        for offset in 0..<Int(record.headerCount) {
            add(batch.headers[Int(record.firstHeader) + offset], of: batch, to: list)
        }
        let error = ProduceCall(
            topic: .handle(topics[Int(record.topic)]), partition: record.partition,
            key: batch.memory(of: record.key), value: batch.memory(of: record.value),
            headers: list, timestamp: 0,
            opaque: RecordReference(slot: slot, index: index).opaque, flags: 0
        ).run(on: client.pointer)
        guard let error else { return nil }
        rd_kafka_headers_destroy(list)  // refused: the list is still ours
        return refusal(error)
    }

    private func add(_ header: OutboxBatch.Header, of batch: OutboxBatch, to list: OpaquePointer) {
        let value = batch.memory(of: header.value)
        switch header.name {
        case .literal(let name):
            name.withUTF8Buffer { bytes in
                _ = rd_kafka_header_add(
                    list, UnsafeRawPointer(bytes.baseAddress)?.assumingMemoryBound(to: CChar.self),
                    bytes.count, value?.baseAddress, value?.count ?? 0)
            }
        case .bytes(let range):
            let name = batch.memory(of: range)
            _ = rd_kafka_header_add(
                list, name?.baseAddress?.assumingMemoryBound(to: CChar.self), name?.count ?? 0,
                value?.baseAddress, value?.count ?? 0)
        }
    }

    private func refusal(_ error: KafkaError) -> Refusal {
        if error.kind == .queueFull { return .queueFull }
        return error.isFatal ? .fatal(client.fatalError ?? error) : .record(error)
    }
}
