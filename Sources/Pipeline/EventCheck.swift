// What a publisher can ask before it publishes: would this record become a push? The same decoder
// answers that the lanes use.

public import Base
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
        /// When its time is over.
        public let expiresAt: UnixMillis
        /// Whether it brings something to show; otherwise a configured default has to.
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

    /// What becomes of a value with these headers; `maximumBytes` is the configured limit.
    public static func check(
        _ value: [UInt8], headers: [(name: String, value: [UInt8])] = [],
        maximumBytes: Int = 256 << 10, takesUserFromSubject: Bool = false, at now: UnixMillis
    ) throws(Refusal) -> Summary {
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
        let result = value.withUnsafeBytes { bytes -> Result<Summary, Refusal> in
            let record = InputRecord(
                position: RecordPosition(topic: "", partition: 0, offset: 0), timestamp: now,
                key: nil, value: bytes, headers: borrowed)
            do throws(Pipeline.Refusal) {
                return .success(Summary(try decoder.decode(record, with: parser), at: now))
            } catch {
                return .failure(Refusal(code: error.code, reason: error.reason))
            }
        }
        return try result.get()
    }
}

extension EventCheck.Summary {
    fileprivate init(_ envelope: EventEnvelope, at now: UnixMillis) {
        var content = envelope.content
        if !content.isExplicit { content.takeFromPayload() }
        self.init(
            userID: envelope.resultUserID ?? "", isBroadcast: envelope.isBroadcast,
            type: envelope.type, app: envelope.app,
            id: envelope.id, source: envelope.source,
            dueAt: max(now, envelope.notBefore ?? now), expiresAt: envelope.expiresAt,
            hasContent: content.isExplicit, isValidation: envelope.isValidation)
    }
}
