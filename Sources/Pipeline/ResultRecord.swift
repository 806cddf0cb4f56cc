// The record of `push.results`, schema `topics/push.results.schema.json`. What all targets of an
// event share is written once and copied into each of their results.

internal import Base
internal import Crypto
internal import Gateways
internal import JSON
internal import Routes
internal import TokenIndex

internal enum ResultRecord {
    /// Writes the members that all targets of an event share, without braces.
    /// `scratch` is overwritten.
    static func writeShared(
        _ event: EventInFlight, to bytes: ByteWriter, scratch: ByteWriter
    ) {
        guard let envelope = event.envelope else { return }
        bytes.removeAll()
        var object = JSONObjectWriter(bytes)
        object.integer("v", 1)
        object.string("event_id", envelope.id)
        object.string("event_type", envelope.type)
        if !envelope.source.isEmpty { object.string("source", envelope.source) }
        if let labels = envelope.labels { object.value("labels", labels) }
        if let routed = event.routed {
            object.string("route", routed.route.name)
            object.string("kind", routed.kind.rawValue)
        }
        object.string("user_id", orNull: envelope.resultUserID)
        if let to = envelope.to { write(to, &object) }
        object.string("app", event.app?.name ?? envelope.app ?? "")
        object.integer("targets", Int64(event.targetCount))
        object.integer("event_time", envelope.time.value)
        object.integer("consumed_at", event.consumedAt.value)
        if let time = event.fannedOutAt { object.integer("fanout_at", time.value) }
        if let key = envelope.collapseKey {
            object.name("collapse_id")
            // The id is printable ASCII without quotes only when it is a hash; a key that passes
            // unchanged may hold a quote, so it is written as a string either way.
            scratch.removeAll()
            CollapseID.write(key: key, to: scratch)
            bytes.append(jsonString: scratch.bytes)
        }
        if let partition = event.partition {
            object.members(partition.resultMembers(of: event.position.topic).bytes)
        }
        object.integer("input_offset", event.position.offset)
        if let burst = event.burst { burst.write(&object) }
    }

    /// Writes where a broadcast goes.
    private static func write(_ to: BroadcastTarget, _ object: inout JSONObjectWriter) {
        object.name("to")
        var members = JSONObjectWriter(object.bytes)
        switch to.kind {
        case .fcmTopic: members.string("fcm_topic", to.name)
        case .fcmCondition: members.string("fcm_condition", to.name)
        case .apnsChannel: members.string("apns_channel", to.name)
        }
        members.end()
    }

    /// Writes the result of an event for which another one was sent.
    static func writeFolded(
        _ folded: HeldEvent, into carrier: EventInFlight, at now: UnixMillis, to bytes: ByteWriter
    ) {
        folded.withResult { bytes.append($0) }
        var object = JSONObjectWriter(continuing: bytes)
        write(foldedInto: carrier.position, carrier.envelope?.id ?? "", &object)
        writeEventLevelTail(
            folded.position, outcome: .coalesced, reason: nil, detail: "", at: now, &object)
    }

    private static func write(
        foldedInto position: RecordPosition, _ eventID: String, _ object: inout JSONObjectWriter
    ) {
        object.name("folded_into")
        var place = JSONObjectWriter(object.bytes)
        place.string("topic", position.topic)
        place.integer("partition", Int64(position.partition))
        place.integer("offset", position.offset)
        place.string("event_id", eventID)
        place.end()
    }

    /// The members that all results of a partition share, without braces.
    static func partitionMembers(
        topic: String, partition: Int32, eventClass: EventClass, configurationHash: String,
        replica: String
    ) -> ByteWriter {
        let bytes = ByteWriter(capacity: 256)
        bytes.append("\"class\":")
        bytes.append(jsonString: eventClass.rawValue)
        var object = JSONObjectWriter(continuing: bytes)
        object.string("input_topic", topic)
        object.integer("input_partition", Int64(partition))
        object.string("config_hash", configurationHash)
        object.string("replica", replica)
        return bytes
    }

    /// The members that all results of a bulkhead share, without braces.
    static func bulkheadMembers(_ gateway: Gateway, _ environment: GatewayEnvironment) -> ByteWriter
    {
        let bytes = ByteWriter(capacity: 128)
        bytes.append("\"address_kind\":\"alert\"")
        var object = JSONObjectWriter(continuing: bytes)
        object.string("gateway", gateway.rawValue)
        object.string("environment", environment.rawValue)
        return bytes
    }

    /// Writes one target's result. What stands between two values that every result has is one
    /// piece of text each.
    static func write(
        _ target: TargetInFlight, of event: EventInFlight, shared: UnsafeRawBufferPointer,
        to bytes: ByteWriter
    ) {
        guard let settlement = target.settlement else { return }
        // `shared` begins with its brace and has no closing one.
        bytes.reserve(shared.count + usualBytes)
        bytes.append(shared)
        bytes.append(",\"result_id\":\"")
        bytes.append(uuid: target.resultID)
        bytes.append("\",\"message_id\":\"")
        bytes.append(uuid: target.messageID)
        bytes.append(0x22)
        if let envelope = event.envelope, envelope.isBroadcast, let to = envelope.to {
            bytes.append(",\"install_id\":null,\"address_kind\":")
            bytes.append(jsonString: to.kind.rawValue)
            var object = JSONObjectWriter(continuing: bytes)
            object.string("gateway", to.kind.gateway.rawValue)
            object.string("environment", to.environment.rawValue)
        } else if let address = target.address {
            write(address, target.bulkhead, to: bytes)
        } else if let former = target.former {
            var object = JSONObjectWriter(continuing: bytes)
            write(former, &object)
        }
        bytes.append(",\"target_index\":")
        bytes.append(decimal: Int64(target.index))
        writeEnd(of: target, settlement, to: bytes)
    }

    /// What a result takes beside the shared part, seldom more.
    private static let usualBytes = 512

    private static func writeEnd(
        of target: TargetInFlight, _ settlement: Settlement, to bytes: ByteWriter
    ) {
        var object = JSONObjectWriter(continuing: bytes)
        if settlement.outcome == .accepted, settlement.status == 200 {
            object.members("\"outcome\":\"accepted\",\"outcome_class\":\"sent\",\"status\":200")
        } else {
            writeOutcome(settlement.outcome, settlement.reason?.rawValue, &object)
            if let status = settlement.status { object.integer("status", Int64(status)) }
        }
        if let newer = target.foldedInto { write(foldedInto: newer.position, newer.id, &object) }
        let detail = settlement.detail.isEmpty ? target.notes.detail : settlement.detail
        if !detail.isEmpty { object.string("detail", detail) }
        if target.gatewayID.count > 0 { object.string("gateway_id", target.gatewayID.bytes) }
        if target.gatewayTraceID.count > 0 {
            object.string("gateway_trace_id", target.gatewayTraceID.bytes)
        }
        if target.attempts == 1, !target.wasAmbiguous {
            object.members("\"attempts\":1,\"ambiguous\":false")
        } else {
            object.integer("attempts", Int64(target.attempts))
            object.bool("ambiguous", target.wasAmbiguous)
        }
        if target.payloadBytes > 0 { object.integer("payload_bytes", Int64(target.payloadBytes)) }
        if let time = target.firstSentAt { object.integer("first_sent_at", time.value) }
        if let time = target.sentAt {
            object.integer("sent_at", time.value)
            object.integer("gateway_ms", target.gatewayTime.millis)
        }
        object.integer("settled_at", target.settledAt.value)
        object.end()
    }

    private static func write(
        _ address: DeviceAddress, _ bulkhead: Bulkhead?, to bytes: ByteWriter
    ) {
        bytes.append(",\"install_id\":")
        address.withInstallID { bytes.append(jsonString: $0) }
        bytes.append(0x2C)
        let kind = address.kind
        if let bulkhead, kind == "alert" {
            bytes.append(bulkhead.resultMembers.bytes)
        } else {
            bytes.append("\"address_kind\":")
            bytes.append(jsonString: kind)
            var object = JSONObjectWriter(continuing: bytes)
            object.string("gateway", address.gateway.rawValue)
            object.string("environment", address.environment.rawValue)
        }
        bytes.append(",\"platform\":")
        address.withPlatform { bytes.append(jsonString: $0) }
        _ = address.withAppVersion {
            bytes.append(",\"app_version\":")
            bytes.append(jsonString: $0)
        }
        bytes.append(",\"token_hash\":\"")
        address.withTokenHash { bytes.append(hex: UnsafeRawBufferPointer(rebasing: $0[..<4])) }
        bytes.append(0x22)
    }

    /// The same of a target whose address is gone.
    private static func write(_ former: PendingTarget, _ object: inout JSONObjectWriter) {
        object.string("install_id", former.installID)
        object.string("address_kind", former.kind)
        object.string("gateway", former.gateway)
        object.string("environment", former.environment)
        object.string("platform", former.platform)
        if let version = former.appVersion { object.string("app_version", version) }
        object.string("token_hash", former.tokenHash)
    }

    private static func writeOutcome(
        _ outcome: Outcome, _ reason: String?, _ object: inout JSONObjectWriter
    ) {
        object.string("outcome", outcome.rawValue)
        object.string("outcome_class", outcome.outcomeClass.rawValue)
        if let reason { object.string("reason", reason) }
    }

    /// Writes the one result of an event that ended before fan-out.
    static func writeEventLevel(
        _ event: EventInFlight, outcome: Outcome, reason: String?, detail: String,
        at now: UnixMillis, shared: ByteWriter, scratch: ByteWriter, to bytes: ByteWriter
    ) {
        writeShared(event, to: shared, scratch: scratch)
        bytes.append(shared.bytes)
        var object = JSONObjectWriter(continuing: bytes)
        writeEventLevelTail(
            event.position, outcome: outcome, reason: reason, detail: detail, at: now, &object)
    }

    /// Writes the result of a record that became a dead letter although its user and id could be
    /// read.
    static func writeRefused(
        _ refusal: Refusal, _ input: InputRecord, partition: AssignedPartition?,
        at now: UnixMillis, to bytes: ByteWriter
    ) {
        var object = JSONObjectWriter(bytes)
        object.integer("v", 1)
        object.string("event_id", refusal.eventID ?? input.position.eventID)
        object.string("event_type", refusal.eventType ?? "")
        object.string("user_id", refusal.userID ?? "")
        object.integer("targets", 1)
        object.integer("event_time", input.timestamp.value)
        object.integer("consumed_at", now.value)
        if let partition { object.members(partition.resultMembers.bytes) }
        object.integer("input_offset", input.position.offset)
        writeEventLevelTail(
            input.position, outcome: .deadLettered, reason: refusal.code.rawValue,
            detail: refusal.reason, at: now, &object)
    }

    private static func writeEventLevelTail(
        _ position: RecordPosition, outcome: Outcome, reason: String?, detail: String,
        at now: UnixMillis, _ object: inout JSONObjectWriter
    ) {
        // The address id is empty, as there is no address.
        let name = "\(position.topic)\0\(position.partition)\0\(position.offset)\0"
        object.uuid("result_id", UUIDv5.make(namespace: Lane.namespace, name: name))
        object.null("install_id")
        object.integer("target_index", 0)
        writeOutcome(outcome, reason, &object)
        if !detail.isEmpty { object.string("detail", detail) }
        object.integer("attempts", 0)
        object.bool("ambiguous", false)
        object.integer("settled_at", now.value)
        object.end()
    }
}
