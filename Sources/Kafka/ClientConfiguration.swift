// Builds librdkafka's configuration object: room defaults first, then what the operator passes
// through, then what may not be changed; every refusal names the property and what to do.

internal import Base
internal import CRDKafka

/// Owner of one `rd_kafka_conf_t` until a client takes it over. Used by one thread.
final class ClientConfiguration {
    /// Properties a passed-through map may not set, and why.
    private static let reserved: [String: String] = [
        "bootstrap.servers": "set kafka.brokers instead",
        "metadata.broker.list": "set kafka.brokers instead",
        "client.id": "brokers know every process of Bugle as bugle",
        "group.id": "set kafka.group instead",
        "enable.auto.commit": "offsets are committed when results are delivered",
        "enable.auto.offset.store": "offsets are committed when results are delivered",
        "enable.partition.eof": "it is set where it is needed",
        "enable.idempotence": "results are always produced idempotently",
        "acks": "results are acknowledged by all replicas",
        "request.required.acks": "results are acknowledged by all replicas",
        "transactional.id": "it is derived from the group and the instance",
        "log.queue": "log lines are taken from the queue",
    ]

    private var conf: OpaquePointer?
    private let configuration: KafkaConfiguration

    init(_ configuration: KafkaConfiguration) {
        self.configuration = configuration
        conf = rd_kafka_conf_new()
    }

    deinit { discard() }

    /// Frees the object when no client took it.
    func discard() {
        if let conf { rd_kafka_conf_destroy(conf) }
        conf = nil
    }

    /// Sets everything in order; the last of equal names wins. A client that knows no brokers
    /// connects nowhere.
    func apply(
        _ defaults: [(String, String)], fixed: [(String, String)] = [], knowsBrokers: Bool = true
    ) throws(KafkaError) {
        guard !configuration.bootstrapServers.isEmpty else {
            throw KafkaError(
                configuration: "kafka.bootstrap_servers: no broker is named; give host:port")
        }
        if knowsBrokers { try set("bootstrap.servers", configuration.bootstrapServers) }
        let common = [
            ("client.id", configuration.clientID),
            ("socket.nagle.disable", "true"),
            ("socket.keepalive.enable", "true"),
            ("reconnect.backoff.ms", "50"),
            ("reconnect.backoff.max.ms", "2000"),
            ("log.connection.close", "false"),
        ]
        for (name, value) in common + defaults { try set(name, value) }
        for (name, value) in configuration.properties.sorted(by: { $0.key < $1.key }) {
            if let reason = Self.reserved[name] {
                throw KafkaError(
                    configuration: "kafka.properties: \(name) cannot be set here; \(reason)")
            }
            try set(name, value)
        }
        for (name, value) in fixed { try set(name, value) }
        if let fault = SetupFault.unnoticed(in: configuration.properties) {
            throw KafkaError(configuration: "kafka.properties: " + fault)
        }
    }

    /// Creates the client. Its events arrive on its queues; its log lines too when somebody wants
    /// them, otherwise nowhere: librdkafka's default would write them to stderr. With
    /// `explainsConnections` the lines are on the queue in any case, among them why a broker's
    /// certificate was refused, which no error says.
    func makeClient(
        _ type: rd_kafka_type_t, events: Int32, failures: DeliveryFailures? = nil,
        explainsConnections: Bool = false
    ) throws(KafkaError) -> ClientHandle {
        let wantsLog = configuration.log != nil || explainsConnections
        if wantsLog { try set("log.queue", "true") }
        guard let conf else { throw KafkaError(RD_KAFKA_RESP_ERR__STATE) }
        rd_kafka_conf_set_log_cb(conf, nil)
        rd_kafka_conf_set_events(conf, events | (wantsLog ? RD_KAFKA_EVENT_LOG : 0))
        if explainsConnections { CertificateFault.explain(in: conf) }
        if let failures {
            // Called inside the transactional calls, on the thread that makes them; the handle keeps
            // the object until the client is gone.
            rd_kafka_conf_set_opaque(conf, Unmanaged.passUnretained(failures).toOpaque())
            rd_kafka_conf_set_dr_msg_cb(conf) { _, message, opaque in
                guard let message, let opaque else { return }
                Unmanaged<DeliveryFailures>.fromOpaque(opaque).takeUnretainedValue().add(message)
            }
        }
        var text = [CChar](repeating: 0, count: Limits.errorTextBytes)
        guard let client = rd_kafka_new(type, conf, &text, text.count) else {
            throw KafkaError(
                configuration: "kafka.properties: "
                    + SetupFault.text(Self.string(text), configuration.properties))
        }
        self.conf = nil  // librdkafka owns it now
        if wantsLog { rd_kafka_set_log_queue(client, nil) }
        return ClientHandle(client, log: configuration.log, failures: failures)
    }

    private func set(_ name: String, _ value: String) throws(KafkaError) {
        guard let conf else { throw KafkaError(RD_KAFKA_RESP_ERR__STATE) }
        var text = [CChar](repeating: 0, count: Limits.errorTextBytes)
        switch rd_kafka_conf_set(conf, name, value, &text, text.count) {
        case RD_KAFKA_CONF_OK: return
        case RD_KAFKA_CONF_UNKNOWN:
            let near = Self.nearest(to: name).map { "; did you mean \($0)?" } ?? ""
            throw KafkaError(configuration: "kafka.properties: unknown property \(name)\(near)")
        default:
            // The value may be a password: librdkafka's text names the property and repeats the
            // value only for enumerations, which are not secret.
            throw KafkaError(configuration: "kafka.properties: \(name): \(Self.string(text))")
        }
    }

    private static func string(_ text: [CChar]) -> String {
        String(decoding: text.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    /// The known property that is the fewest edits away, when that is near enough to help.
    private static func nearest(to name: String) -> String? {
        guard let conf = rd_kafka_conf_new() else { return nil }
        defer { rd_kafka_conf_destroy(conf) }
        var count = 0
        guard let dump = rd_kafka_conf_dump(conf, &count) else { return nil }
        defer { rd_kafka_conf_dump_free(dump, count) }
        var best: (name: String, edits: Int)?
        for index in stride(from: 0, to: count, by: 2) {
            guard let raw = dump[index] else { continue }
            let known = String(cString: raw)
            let edits = edits(Array(name.utf8), Array(known.utf8))
            if edits < best?.edits ?? .max { best = (known, edits) }
        }
        guard let best, best.edits <= max(2, name.utf8.count / 4) else { return nil }
        return best.name
    }

    private static func edits(_ left: [UInt8], _ right: [UInt8]) -> Int {
        var row = Array(0...right.count)
        for (i, byte) in left.enumerated() {
            var diagonal = row[0]
            row[0] = i + 1
            for (j, other) in right.enumerated() {
                let replaced = diagonal + (byte == other ? 0 : 1)
                diagonal = row[j + 1]
                row[j + 1] = min(replaced, diagonal + 1, row[j] + 1)
            }
        }
        return row[right.count]
    }
}
