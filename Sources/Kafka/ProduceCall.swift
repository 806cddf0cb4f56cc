// The one call of librdkafka that takes headers: an array of tagged values, since the variadic form
// cannot be imported.

internal import CRDKafka

/// One record for `rd_kafka_produceva`.
struct ProduceCall {
    enum Topic {
        case name(UnsafePointer<CChar>)
        case handle(OpaquePointer)
    }

    var topic: Topic
    var partition: Int32
    var key: UnsafeRawBufferPointer?
    var value: UnsafeRawBufferPointer?
    /// A complete list, never single entries: those are freed twice on an error path of this
    /// version. Owned by the client after success, by the caller after an error.
    var headers: OpaquePointer?
    /// Milliseconds since the epoch; zero stands for the time of the call.
    var timestamp: Int64
    var opaque: UnsafeMutableRawPointer?
    var flags: Int32

    /// Nil when the record was queued.
    func run(on client: OpaquePointer) -> KafkaError? {
        withUnsafeTemporaryAllocation(of: rd_kafka_vu_t.self, capacity: 8) { arguments in
            arguments.initialize(repeating: rd_kafka_vu_t())
            var count = 0
            func next(_ type: rd_kafka_vtype_t, _ fill: (inout rd_kafka_vu_t) -> Void) {
                arguments[count].vtype = type
                fill(&arguments[count])
                count += 1
            }
            switch topic {
            case .name(let name): next(RD_KAFKA_VTYPE_TOPIC) { $0.u.cstr = name }
            case .handle(let handle): next(RD_KAFKA_VTYPE_RKT) { $0.u.rkt = handle }
            }
            next(RD_KAFKA_VTYPE_PARTITION) { $0.u.i32 = partition }
            next(RD_KAFKA_VTYPE_MSGFLAGS) { $0.u.i = flags }
            next(RD_KAFKA_VTYPE_OPAQUE) { $0.u.ptr = opaque }
            if let key { next(RD_KAFKA_VTYPE_KEY) { Self.set(key, in: &$0) } }
            if let value { next(RD_KAFKA_VTYPE_VALUE) { Self.set(value, in: &$0) } }
            if timestamp != 0 { next(RD_KAFKA_VTYPE_TIMESTAMP) { $0.u.i64 = timestamp } }
            if let headers { next(RD_KAFKA_VTYPE_HEADERS) { $0.u.headers = headers } }
            return rd_kafka_produceva(client, arguments.baseAddress, count).map {
                KafkaError(consuming: $0)
            }
        }
    }

    private static func set(_ bytes: UnsafeRawBufferPointer, in argument: inout rd_kafka_vu_t) {
        argument.u.mem.ptr = UnsafeMutableRawPointer(mutating: bytes.baseAddress)
        argument.u.mem.size = bytes.count
    }
}
