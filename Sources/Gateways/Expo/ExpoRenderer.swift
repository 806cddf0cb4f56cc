// Builds messages for Expo's push service, and the requests that carry up to a hundred of them.

public import Base
internal import JSON

/// Builds the messages and requests of one project.
///
/// Loop-confined: it keeps scratch memory between calls.
public final class ExpoRenderer {
    private let authority: String
    private let credential: ExpoCredential
    private let scratch = ByteWriter(capacity: 1024)
    private lazy var parser = JSONParser(maximumBytes: 1 << 20)

    /// Where messages are posted.
    public static let sendPath: StaticString = "/--/api/v2/push/send"
    /// Where receipts are asked for.
    public static let receiptsPath: StaticString = "/--/api/v2/push/getReceipts"

    /// A renderer for one project; the host is Expo's unless another is given.
    public init(_ credential: ExpoCredential, authority: String = "exp.host") {
        self.credential = credential
        self.authority = authority
    }

    /// Writes one message.
    ///
    /// Unless the result is `.request`, nothing was written.
    public func render(
        _ content: borrowing PushContent, to target: borrowing PushTarget, into message: ByteWriter
    ) -> Rendering {
        message.removeAll()
        if content.isOver { return .expired }
        guard ExpoToken.isToken(target.token) else {
            return .malformedToken(
                detail: "the token has none of the forms that Expo's push tokens have")
        }
        var notes = RenderingNotes()
        var size: Int
        if let patch = content.expo {
            scratch.removeAll()
            size = write(content, target, &notes, to: scratch)
            // What is generated always parses, unless it is far too large to be sent.
            let base = try? parser.parse(scratch.bytes)
            JSONMerge.write(base, patchedWith: patch, except: ["to"], to: message)
            size = max(size, Self.size(of: message, parser))
        } else {
            size = write(content, target, &notes, to: message)
        }
        guard size <= ExpoLimits.payloadBytes else {
            message.removeAll()
            return .tooLarge(bytes: size, limit: ExpoLimits.payloadBytes)
        }
        return .request(notes)
    }

    /// Writes the header fields of a request; its body follows.
    public func writeHead(
        path: StaticString, isCompressed: Bool, into request: OutboundRequest
    ) {
        request.add(":method", "POST")
        request.add(":scheme", "https")
        request.add(":authority", authority)
        request.add(":path", path)
        if let header = credential.header {
            request.add("authorization", .neverIndexed) { $0.append(header.exposed) }
        }
        request.add("accept", "application/json")
        request.add("content-type", "application/json")
        if isCompressed { request.add("content-encoding", "gzip") }
    }

    /// Writes the body that asks for receipts.
    public static func writeReceiptsBody(_ ids: some Sequence<String>, to body: ByteWriter) {
        body.append("{\"ids\":[")
        var isFirst = true
        for id in ids {
            if !isFirst { body.append(0x2C) }
            isFirst = false
            body.append(jsonString: id)
        }
        body.append("]}")
    }

    // MARK: Message

    /// The words of a notification under the names that Expo has for them.
    private static let words: [(word: StaticString, name: StaticString)] = [
        ("title", "title"), ("subtitle", "subtitle"), ("body", "body"), ("sound", "sound"),
        ("category", "categoryId"), ("thread_id", "threadId"),
        ("interruption_level", "interruptionLevel"), ("relevance_score", "relevanceScore"),
        ("target_content_id", "targetContentId"), ("filter_criteria", "filterCriteria"),
        ("mutable_content", "mutableContent"), ("content_available", "contentAvailable"),
        ("channel_id", "channelId"), ("icon", "icon"),
    ]

    /// Writes a message and counts its payload: texts, data, the image's address, and what APNs and
    /// FCM will need around them.
    private func write(
        _ content: borrowing PushContent, _ target: borrowing PushTarget,
        _ notes: inout RenderingNotes, to writer: ByteWriter
    ) -> Int {
        var size = ExpoLimits.overheadBytes
        var isMarkedAvailable = false
        var message = JSONObjectWriter(writer)
        message.string("to", target.token)
        if let notification = content.notification {
            for entry in notification.entries {
                guard let name = Self.words.first(where: { $0.word.spells(entry.name) })?.name
                else { continue }
                if entry.value.isObject {
                    message.name(name)
                    Self.writeSound(entry.value, to: writer)
                } else {
                    message.value(name, entry.value)
                }
                if entry.name.spells("content_available") { isMarkedAvailable = true }
                size += entry.value.stringBytes?.count ?? 0
            }
            if let importance = content.importance, importance.isUnusual,
                !notification.hasInterruptionLevel
            {
                message.literal("interruptionLevel", importance.interruptionLevel)
            }
            if let image = notification.image {
                message.name("richContent")
                var rich = JSONObjectWriter(writer)
                rich.value("image", image)
                rich.end()
                size += image.stringBytes?.count ?? 0
            }
        }
        if let badge = content.notification.flatMap({ $0.badge ?? content.unread }) {
            message.integer("badge", badge)
        }
        // A sound or a badge are enough for Apple's devices; Android shows texts alone.
        let isApple = target.platform != nil && target.isAppleOrUnknown
        let isVisible =
            isApple ? content.isVisible : content.notification?.hasText ?? false
        if isVisible {
            // On Android `collapseId` is FCM's collapse key, of which a device keeps four.
            message.name(isApple ? "collapseId" : "tag")
            writeCollapseID(content, to: writer)
        }
        let isShown = isVisible || content.isVisible && target.platform != "android"
        if !isShown, !isMarkedAvailable {
            message.bool("contentAvailable", true)
        }
        // Expo hands the priority on to APNs, which takes no high one where nothing is shown.
        let isUrgent =
            content.kind == .call ? isVisible || !isApple : isVisible && content.priority != .low
        message.literal("priority", isUrgent ? "high" : "normal")
        if let life = Self.timeToLive(content, &notes) { message.integer("ttl", life) }
        message.name("data")
        let start = writer.count
        writeData(content, &notes, to: writer)
        size += writer.count - start
        message.end()
        return size
    }

    /// Writes a sound that is an object, which no other word is: Expo's `critical` is a boolean where
    /// Apple's is 1.
    private static func writeSound(_ sound: JSONValue, to writer: ByteWriter) {
        var object = JSONObjectWriter(writer)
        if let critical = sound["critical"] {
            object.bool("critical", critical.bool ?? (critical.int64 == 1))
        }
        for name: StaticString in ["name", "volume"] {
            if let value = sound[name], !value.isNull { object.value(name, value) }
        }
        object.end()
    }

    /// Writes what a newer notification is shown in place of an older one by.
    private func writeCollapseID(_ content: borrowing PushContent, to writer: ByteWriter) {
        let tag = ByteWriter(capacity: 64)
        CollapseID.write(of: content, to: tag)
        writer.append(jsonString: tag.bytes)
    }

    private static func timeToLive(
        _ content: borrowing PushContent, _ notes: inout RenderingNotes
    ) -> Int64? {
        if content.storesNothing { return 0 }
        return content.expiry(within: ExpoLimits.storage, &notes).map {
            ($0 - content.now).millis / 1000
        }
    }

    private func writeData(
        _ content: borrowing PushContent, _ notes: inout RenderingNotes, to writer: ByteWriter
    ) {
        writer.append("{\"bugle\":")
        PayloadBlock.write(content, image: nil, to: writer)
        if let data = content.data {
            var dropped = false
            data.forEachLastMember { name, value in
                guard !name.spells(PayloadBlock.key) else {
                    dropped = true
                    return
                }
                writer.append(0x2C)
                writer.append(jsonString: name)
                writer.append(0x3A)
                value.writeCompact(to: writer)
            }
            if dropped { notes.insert(.droppedReservedKeys) }
        }
        writer.append(0x7D)
    }

    /// The payload of a message that an override had a hand in.
    private static func size(of message: ByteWriter, _ parser: JSONParser) -> Int {
        guard let merged = try? parser.parse(message.bytes) else { return message.count }
        let texts: [StaticString] = ["title", "subtitle", "body"]
        let data = ByteWriter(capacity: 256)
        merged["data"]?.writeCompact(to: data)
        let image = merged["richContent"]?["image"]?.stringBytes?.count ?? 0
        return texts.reduce(ExpoLimits.overheadBytes + image + data.count) {
            $0 + (merged[$1]?.stringBytes?.count ?? 0)
        }
    }
}
