// Decode: from a record's bytes to an event, or to the reason why it is none. Native JSON and
// CloudEvents 1.0 (structured and binary mode of the Kafka binding) come out the same.

internal import Base
internal import JSON

/// Turns records into events. Stateless; the parser belongs to the event.
internal struct EventDecoder: Sendable {
    /// Larger values are refused, in bytes.
    var maximumBytes: Int
    /// Whether a CloudEvent's `subject` names the user when there is no `userid`.
    var takesUserFromSubject = false

    private static let defaultTTL: Int64 = 86_400

    /// Decodes a record; what the event holds is valid until the parser's next parse.
    func decode(_ record: InputRecord, with parser: JSONParser) throws(Refusal) -> EventEnvelope {
        guard let value = record.value else {
            throw Refusal(.nullValue, "the value is null; an event needs a JSON object")
        }
        guard value.count <= maximumBytes else {
            throw Refusal(
                .tooLarge, "the value has \(value.count) bytes; the limit is \(maximumBytes)")
        }
        let beside = record.bytesBesideValue
        guard beside <= InputRecord.bytesBesideValueMax else {
            throw Refusal(
                .tooLarge,
                "key and headers have \(beside) bytes; the limit is "
                    + "\(InputRecord.bytesBesideValueMax)")
        }
        switch try CloudEventMode(of: record) {
        case .binary: return try decodeBinaryCloudEvent(record, value, parser)
        case .structured:
            return try decodeStructuredCloudEvent(record, try object(value, parser))
        case .none:
            let root = try object(value, parser)
            if root["specversion"]?.string != nil && root["user_id"] == nil {
                return try decodeStructuredCloudEvent(record, root)
            }
            return try decodeNative(record, root)
        }
    }

    private func object(
        _ value: UnsafeRawBufferPointer, _ parser: JSONParser
    ) throws(Refusal) -> JSONValue {
        let json = try Framing.unframed(value)
        let root: JSONValue
        do throws(JSONError) {
            root = try parser.parse(json)
        } catch {
            throw Refusal(.notJSON, "the value cannot be read: \(error)")
        }
        guard root.isObject else {
            throw Refusal(.notJSON, "the value is JSON but not an object")
        }
        return root
    }
}

// MARK: - Native events

extension EventDecoder {
    private func decodeNative(
        _ record: InputRecord, _ root: JSONValue
    ) throws(Refusal) -> EventEnvelope {
        let fields = EventFields(root)
        do throws(Refusal) {
            try fields.refuseOtherVersion()
            let alias = try fields.text(.eventType, upTo: 128)
            guard let type = try fields.text(.type, upTo: 128) ?? alias else {
                throw Refusal(.missingField, "type is missing")
            }
            let content = EventContent(
                payload: try fields.object(.payload),
                notification: try fields.content(.notification), data: try fields.content(.data),
                apns: try fields.content(.apns), fcm: try fields.content(.fcm),
                webpush: try fields.content(.webpush), expo: try fields.content(.expo))
            return try envelope(
                fields, record, type: type, userField: .userID, collapseField: .collapseKey,
                expiryField: .expiresAt, content: content)
        } catch {
            throw described(error, fields, userField: .userID, typeField: .type)
        }
    }

    /// The fields that native events and CloudEvents share, under their own names.
    private func envelope(
        _ fields: EventFields, _ record: InputRecord, type: String, userField: EventField,
        collapseField: EventField, expiryField: EventField, content: EventContent,
        fallbackUser: String? = nil
    ) throws(Refusal) -> EventEnvelope {
        try refuseWhatIsNotServed(fields)
        let to = try fields.broadcast(userField: userField)
        let userID: String
        if let to {
            userID = EventEnvelope.standIn(for: to)
        } else if let user = try fields.identifier(userField, upTo: 256) ?? fallbackUser {
            userID = user
        } else {
            throw Refusal(.noUser, "\(userField) is missing: there is nobody to send to")
        }
        let ownID = try fields.identifier(.id, upTo: 128)
        let time = try fields.time(.time) ?? record.timestamp
        let ttl = try fields.integer(.ttl, in: 0...315_360_000)
        let expiry = try fields.time(expiryField)
        let isOneAttempt = ttl == 0 && expiry == nil
        let lifetime = isOneAttempt ? EventEnvelope.oneAttemptSeconds : ttl ?? Self.defaultTTL
        let priority: EventPriority? = try fields.choice(.priority)
        return EventEnvelope(
            id: ownID ?? record.position.eventID, hasOwnID: ownID != nil, type: type,
            userID: userID, to: to, app: try fields.app(),
            source: try fields.text(.source, upTo: 256) ?? "", labels: try fields.labels(),
            time: time, expiresAt: expiry ?? time + .seconds(lifetime),
            hasOwnExpiry: ttl != nil || expiry != nil, isOneAttempt: isOneAttempt,
            notBefore: try fields.time(.notBefore), priority: priority ?? .normal,
            hasOwnPriority: priority != nil,
            collapseKey: try fields.text(collapseField, upTo: 1024), content: content,
            cursor: try fields.cursor(), unread: try fields.integer(.unread, in: 0...1_000_000),
            only: try fields.filter(.only), except: try fields.filter(.except),
            isValidation: try fields.mode())
    }

    private func refuseWhatIsNotServed(_ fields: EventFields) throws(Refusal) {
        if fields.has(.userIDs) {
            throw Refusal(.unsupported, "user_ids is reserved; publish one event per user")
        }
    }

    /// Adds what could be read, so that a result can name the event and its user.
    private func described(
        _ refusal: Refusal, _ fields: EventFields, userField: EventField, typeField: EventField
    ) -> Refusal {
        var refusal = refusal
        refusal.userID = try? fields.identifier(userField, upTo: 256)
        refusal.eventID = try? fields.identifier(.id, upTo: 128)
        refusal.eventType = try? fields.text(typeField, upTo: 128)
        return refusal
    }
}

// MARK: - CloudEvents

extension EventDecoder {
    private func decodeStructuredCloudEvent(
        _ record: InputRecord, _ root: JSONValue
    ) throws(Refusal) -> EventEnvelope {
        let fields = EventFields(root, isCloudEvent: true)
        do throws(Refusal) {
            try refuseIncomplete(fields)
            if fields.has(.dataBase64) {
                throw Refusal(.invalidField, "data_base64: data must be a JSON object")
            }
            let data = try fields.object(.data)
            guard let type = try fields.text(.type, upTo: 128) else {
                throw Refusal(.missingField, "type is missing")
            }
            let isNamedBySubject = takesUserFromSubject && !fields.has(.userIDExtension)
            return try envelope(
                fields, record, type: type, userField: .userIDExtension,
                collapseField: .collapseKeyExtension,
                expiryField: .expiresAtExtension, content: EventContent(payload: data),
                fallbackUser: isNamedBySubject ? fields.text(.subject, upTo: 256) : nil)
        } catch {
            throw described(error, fields, userField: .userIDExtension, typeField: .type)
        }
    }

    /// The attributes that make an object a CloudEvent (CloudEvents 1.0, section 2.1); `type` is
    /// asked for where it is read.
    private func refuseIncomplete(_ fields: EventFields) throws(Refusal) {
        guard let version = try fields.text(.specversion, upTo: 16) else {
            throw Refusal(.missingField, "specversion is missing: a CloudEvent needs it")
        }
        guard version == "1.0" else {
            throw Refusal(.unsupported, "specversion must be 1.0")
        }
        for name: EventField in [.id, .source] where !fields.has(name) {
            throw Refusal(.missingField, "\(name) is missing: a CloudEvent needs it")
        }
        // Numbers will do in native events; here these are texts by specification (section 3).
        for name: EventField in [.id, .time, .expiresAtExtension] { try fields.refuseNumber(name) }
    }

    /// Binary mode: attributes are headers, the value is the data. The attributes are written as
    /// JSON beside the data and decoded like a structured event, so that both modes share every
    /// rule; the cost falls on this mode alone.
    private func decodeBinaryCloudEvent(
        _ record: InputRecord, _ value: UnsafeRawBufferPointer, _ parser: JSONParser
    ) throws(Refusal) -> EventEnvelope {
        _ = try object(value, parser)
        let document = ByteWriter(capacity: value.count + 512)
        document.append("{")
        for header in record.headers where header.name.hasPrefix("ce_") {
            guard let text = header.value, Self.isPlainText(text) else {
                throw Refusal(.invalidField, "a ce_ header is not UTF-8 text")
            }
            document.append(jsonString: String(header.name.dropFirst(3)))
            document.append(":")
            // Headers are text; the attributes that are numbers in JSON become numbers.
            let isNumber = header.name == "ce_ttl" || header.name == "ce_unread"
            if isNumber && Self.isDigits(text) {
                document.append(text)
            } else {
                document.append(jsonString: text)
            }
            document.append(",")
        }
        document.append("\"data\":")
        document.append(try Framing.unframed(value))
        document.append("}")
        return try decodeStructuredCloudEvent(record, try object(document.bytes, parser))
    }

    private static func isDigits(_ bytes: UnsafeRawBufferPointer) -> Bool {
        bytes.count >= 1 && bytes.count <= 18 && bytes.allSatisfy { $0 >= 0x30 && $0 <= 0x39 }
            && (bytes[0] != 0x30 || bytes.count == 1)
    }

    private static func isPlainText(_ bytes: UnsafeRawBufferPointer) -> Bool {
        String(validating: bytes, as: UTF8.self) != nil
    }
}

/// How a record says that it is a CloudEvent (Kafka protocol binding 1.0, section 3).
private enum CloudEventMode {
    case none, structured, binary

    init(of record: InputRecord) throws(Refusal) {
        self = .none
        guard !record.headers.isEmpty else { return }
        if let type = record.header("content-type") {
            let text = String(decoding: type, as: UTF8.self).lowercased()
            if text.hasPrefix("application/cloudevents-batch") {
                throw Refusal(.unsupported, "batches of CloudEvents do not exist on Kafka")
            }
            if text.hasPrefix("application/cloudevents") {
                self = .structured
                return
            }
        }
        // One whose other attributes are missing is told so, and not taken for a native event.
        if record.header("ce_specversion") != nil { self = .binary }
    }
}

/// Serialisations that wrap or replace JSON.
private enum Framing {
    /// Skips a schema registry's frame (a zero byte and a four-byte id) when JSON follows.
    static func unframed(
        _ value: UnsafeRawBufferPointer
    ) throws(Refusal) -> UnsafeRawBufferPointer {
        guard let first = value.first else {
            throw Refusal(.notJSON, "the value is empty")
        }
        if first == 0, value.count > 5 {
            let rest = UnsafeRawBufferPointer(rebasing: value[5...])
            if rest.first == 0x7B { return rest }
            throw Refusal(
                .foreignFraming,
                "the value has a schema registry's frame, but what follows is not a JSON object")
        }
        for (magic, name) in known where value.count >= magic.count && value.starts(with: magic) {
            throw Refusal(.foreignFraming, "the value is \(name), not JSON")
        }
        return value
    }

    private static let known: [(magic: [UInt8], name: String)] = [
        ([0x1F, 0x8B], "compressed with gzip"), ([0x28, 0xB5, 0x2F, 0xFD], "compressed with zstd"),
        ([0x04, 0x22, 0x4D, 0x18], "compressed with lz4"),
        ([0x4F, 0x62, 0x6A, 0x01], "an Avro file"),
        ([0xEF, 0xBB, 0xBF], "text with a byte order mark"), ([0xAC, 0xED], "a Java object"),
    ]
}

extension RecordPosition {
    /// The id of an event that states none.
    var eventID: String { "\(topic)-\(partition)-\(offset)" }
}
