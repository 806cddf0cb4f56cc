// A list of partitions with offsets, as librdkafka passes it around.

internal import CRDKafka

/// Owner of an `rd_kafka_topic_partition_list_t`; one thread at a time.
struct PartitionList: ~Copyable {
    /// One element, copied out.
    struct Element {
        var place: TopicPartition
        var offset: Int64
        var metadata: String
        var error: KafkaError?
    }

    let pointer: UnsafeMutablePointer<rd_kafka_topic_partition_list_t>

    /// An empty list.
    init(capacity: Int = 8) {
        guard let list = rd_kafka_topic_partition_list_new(Int32(clamping: capacity)) else {
            preconditionFailure("no memory for a partition list")
        }
        pointer = list
    }

    /// A copy of a list that belongs to an event or a call.
    init(copying other: UnsafePointer<rd_kafka_topic_partition_list_t>) {
        guard let list = rd_kafka_topic_partition_list_copy(other) else {
            preconditionFailure("no memory for a partition list")
        }
        pointer = list
    }

    /// Takes over a list that the caller would have to free.
    init(owning list: UnsafeMutablePointer<rd_kafka_topic_partition_list_t>) { pointer = list }

    deinit { rd_kafka_topic_partition_list_destroy(pointer) }

    var count: Int { Int(pointer.pointee.cnt) }

    /// Adds a partition. librdkafka copies the name and frees the metadata, which therefore comes
    /// from its own allocator.
    func add(_ place: TopicPartition, offset: Int64? = nil, metadata: String = "") {
        guard
            let element = rd_kafka_topic_partition_list_add(
                pointer, place.topic, place.partition)
        else { preconditionFailure("no memory for a partition list") }
        if let offset { element.pointee.offset = offset }
        let text = Array(metadata.utf8)
        guard !text.isEmpty, let memory = rd_kafka_mem_malloc(nil, text.count) else { return }
        text.withUnsafeBytes { bytes in
            if let start = bytes.baseAddress {
                memory.copyMemory(from: start, byteCount: bytes.count)
            }
        }
        element.pointee.metadata = memory
        element.pointee.metadata_size = text.count
    }

    func setOffset(_ offset: Int64, at index: Int) {
        pointer.pointee.elems[index].offset = offset
    }

    /// All elements, copied out.
    var elements: [Element] { Self.elements(of: pointer) }

    /// The elements of a list somebody else owns.
    static func elements(of list: UnsafePointer<rd_kafka_topic_partition_list_t>) -> [Element] {
        (0..<Int(list.pointee.cnt)).map { index in
            let raw = list.pointee.elems[index]
            let topic = raw.topic.map { String(cString: $0) } ?? ""
            let metadata = UnsafeRawBufferPointer(start: raw.metadata, count: raw.metadata_size)
            return Element(
                place: TopicPartition(topic, raw.partition), offset: raw.offset,
                metadata: String(decoding: metadata, as: UTF8.self),
                error: raw.err == RD_KAFKA_RESP_ERR_NO_ERROR ? nil : KafkaError(raw.err))
        }
    }
}
