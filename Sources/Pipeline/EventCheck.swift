// What a publisher can ask before it publishes: would this record become a push? The same decoder
// answers that the lanes use.

public import Base
internal import Gateways
internal import JSON

/// Checks a record of an events topic without sending anything.
public enum EventCheck {
    /// What the record says, as far as a person asks.
    public struct Summary: Sendable, Equatable {
        /// The user it is for: the key that it has to be published with.
        public let userID: String
        /// Whether the gateway fans it out: it is for no user, and its key is free.
        public let isBroadcast: Bool
        /// The kind of event.
        public let type: String
        /// The app it names, if it names one.
        public let app: String?
        /// Its id; that of its place when it does not say.
        public let id: String
        /// Who sent it; empty when it does not say.
        public let source: String
        /// When it was due: its timestamp, or the moment before which it must not be sent.
        public let dueAt: UnixMillis
        /// When it happened, by its own word or else now.
        public let time: UnixMillis
        /// When its time is over.
        public let expiresAt: UnixMillis
        /// Whether it brings content; otherwise a route has to make it.
        public let hasContent: Bool
        /// Whether it asks for a dry run.
        public let isValidation: Bool
    }

    /// Why the record would become a dead letter.
    public struct Refusal: Error, Sendable, Equatable {
        /// The header `bugle-error-code` it would get.
        public let code: DeadLetterCode
        /// One line that names the field.
        public let reason: String
    }

    /// What the record brings to show, looked into further than the decoder does, which leaves its
    /// words until a push is built.
    public struct Content: Sendable, Equatable {
        /// Why every target would end `rejected`, `invalid_content`: a field and its rule; nil when
        /// every word has the type that it needs.
        public let fault: String?
        /// Whether the words are those of the payload, which count only where no route does.
        public let isFromPayload: Bool
        /// Whether a person sees or hears anything of it; nil when what is merged for a gateway may
        /// say otherwise, and when there is none.
        public let isVisible: Bool?
    }

    /// The members of native events that are read; others are ignored.
    public static let fields: [String] =
        ([
            .v, .id, .type, .eventType, .source, .time, .userID, .userIDs, .to, .app, .labels,
            .mode,
            .ttl, .expiresAt, .notBefore, .priority, .collapseKey, .unread, .cursor, .only, .except,
            .payload, .notification, .data, .apns, .fcm, .webpush, .expo,
        ] as [EventField]).map(\.description)

    /// The extension attributes of CloudEvents that are read.
    public static let extensions: [String] =
        ([
            .userIDExtension, .app, .collapseKeyExtension, .expiresAtExtension, .ttl, .priority,
        ] as [EventField]).map(\.description)

    /// The members of `only` and `except`.
    public static let filterFields: [String] =
        ([
            .installIDs, .platforms, .gateways,
        ] as [EventField]).map(\.description)

    /// The members of `to`.
    public static let targetFields: [String] =
        ([
            .fcmTopic, .fcmCondition, .apnsChannel, .environment,
        ] as [EventField]).map(\.description)

    /// What becomes of a value with these headers; `maximumBytes` is the configured limit.
    public static func check(
        _ value: [UInt8], headers: [(name: String, value: [UInt8])] = [],
        maximumBytes: Int = 256 << 10, takesUserFromSubject: Bool = false, at now: UnixMillis
    ) throws(Refusal) -> Summary {
        try read(value, headers, maximumBytes, takesUserFromSubject, now) { envelope in
            Summary(envelope, at: now)
        }
    }

    /// The content of a value without headers; of a routed event only what it brings beside its
    /// payload.
    public static func content(
        of value: [UInt8], isRouted: Bool, maximumBytes: Int = 256 << 10,
        takesUserFromSubject: Bool = false, at now: UnixMillis
    ) throws(Refusal) -> Content {
        try read(value, [], maximumBytes, takesUserFromSubject, now) { envelope in
            Content(envelope.content, isRouted: isRouted)
        }
    }

    private static func read<Value>(
        _ value: [UInt8], _ headers: [(name: String, value: [UInt8])], _ maximumBytes: Int,
        _ takesUserFromSubject: Bool, _ now: UnixMillis, _ body: (EventEnvelope) -> Value
    ) throws(Refusal) -> Value {
        let decoder = EventDecoder(
            maximumBytes: maximumBytes, takesUserFromSubject: takesUserFromSubject)
        let parser = JSONParser()
        // The headers' bytes have to stay where they are while the decoder reads them.
        let arena = ByteWriter()
        for header in headers { arena.append(header.value) }
        var offset = 0
        let borrowed = headers.map { header in
            defer { offset += header.value.count }
            return InputHeader(
                name: header.name,
                value: UnsafeRawBufferPointer(
                    rebasing: arena.bytes[offset..<offset + header.value.count]))
        }
        let result = value.withUnsafeBytes { bytes -> Result<Value, Refusal> in
            let record = InputRecord(
                position: RecordPosition(topic: "", partition: 0, offset: 0), timestamp: now,
                key: nil, value: bytes, headers: borrowed)
            do throws(Pipeline.Refusal) {
                return .success(body(try decoder.decode(record, with: parser)))
            } catch {
                return .failure(Refusal(code: error.code, reason: error.reason))
            }
        }
        return try result.get()
    }
}

extension EventCheck.Content {
    fileprivate init(_ content: EventContent, isRouted: Bool) {
        var content = content
        isFromPayload = !content.isExplicit && !isRouted
        var excess: String?
        if isFromPayload {
            do throws(Pipeline.Refusal) {
                try content.takeFromPayload()
            } catch {
                excess = error.reason
            }
        }
        let words = PushContent(
            messageID: UUIDBytes(high: 0, low: 0), eventType: "",
            eventIdentity: UUIDBytes(high: 0, low: 0), now: UnixMillis(0))
        do throws(ContentError) {
            try words.take(
                notification: content.notification, data: content.data, apns: content.apns,
                fcm: content.fcm, webpush: content.webpush, expo: content.expo)
            fault = excess
        } catch {
            fault = error.description
        }
        let overrides = [content.apns, content.fcm, content.webpush, content.expo]
        let isOverridden = overrides.contains { $0.map { $0.count > 0 } ?? false }
        isVisible =
            words.notification?.isVisible == true
            ? true : isOverridden || !content.isExplicit ? nil : false
    }
}

extension EventCheck.Summary {
    fileprivate init(_ envelope: EventEnvelope, at now: UnixMillis) {
        var content = envelope.content
        // Content that is too large is there nevertheless.
        let hasContent =
            content.isExplicit || (try? content.takeFromPayload()) == nil || content.isExplicit
        self.init(
            userID: envelope.resultUserID ?? "", isBroadcast: envelope.isBroadcast,
            type: envelope.type, app: envelope.app,
            id: envelope.id, source: envelope.source,
            dueAt: max(now, envelope.notBefore ?? now), time: envelope.time,
            expiresAt: envelope.expiresAt,
            hasContent: hasContent, isValidation: envelope.isValidation)
    }
}
