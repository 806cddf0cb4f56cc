internal import Base
internal import JSON

/// The small block that every payload carries under the key `bugle`.
internal enum PayloadBlock {
    /// The key; events cannot set it.
    static let key: StaticString = "bugle"

    /// Where in the block the message's id stands.
    static let idOffset = "{\"id\":\"".utf8.count

    /// Writes the block as a JSON object.
    static func write(
        _ content: borrowing PushContent, image: JSONValue?, showing isShownByApp: Bool = false,
        to writer: ByteWriter
    ) {
        var block = JSONObjectWriter(writer)
        block.uuid("id", content.messageID)
        block.string("type", content.eventType)
        if let audience = content.audience { block.string("aud", audience) }
        if let sealed = content.sealed { block.string("jwe", sealed.bytes) }
        if let image { block.value("image", image) }
        if let notification = content.notification {
            if let link = notification.link { block.value("link", link) }
            if let pointer = notification.pointer { block.value("pointer", pointer) }
            if let actions = notification.actions { block.value("actions", actions) }
            if isShownByApp {
                block.name("notification")
                writeShown(content, notification, to: writer)
            }
        }
        if let cursor = content.cursor {
            block.name("cursor")
            var object = JSONObjectWriter(writer)
            object.string("log", cursor.log)
            object.integer("seq", cursor.seq)
            object.end()
        }
        block.end()
    }

    /// Writes what an app needs to show a notification itself: the words that the system would
    /// have got, under their names in FCM, and the tag by which it shows a newer one in place of
    /// an older one.
    private static func writeShown(
        _ content: borrowing PushContent, _ notification: NotificationContent,
        to writer: ByteWriter
    ) {
        let tag = ByteWriter(capacity: 64)
        CollapseID.write(of: content, to: tag)
        var object = JSONObjectWriter(writer)
        object.string("tag", tag.bytes)
        for entry in notification.entries {
            switch entry.fcm {
            case .notification(let name), .android(let name): object.value(name, entry.value)
            case .nowhere: break
            }
        }
        object.end()
    }
}
