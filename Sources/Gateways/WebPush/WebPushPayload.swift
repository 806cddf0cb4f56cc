internal import Base
internal import JSON

/// Writes what a service worker finds in `event.data`: `notification`, made to be handed to
/// `showNotification`, `data`, `unread`, and our block.
internal enum WebPushPayload {
    /// The words of a notification that go out under their own names.
    private static let words: [StaticString] = [
        "title", "body", "icon", "image", "click_action", "title_loc_key", "title_loc_args",
        "body_loc_key", "body_loc_args",
    ]

    /// Writes the payload without an override.
    static func write(_ content: borrowing PushContent, to writer: ByteWriter) {
        var payload = JSONObjectWriter(writer)
        if let notification = content.notification {
            payload.name("notification")
            var object = JSONObjectWriter(writer)
            for entry in notification.entries
            where words.contains(where: { $0.spells(entry.name) }) {
                object.value(entry.name, entry.value)
            }
            if let actions = notification.actions {
                object.name("actions")
                write(actions, to: writer)
            }
            // The browser shows a second copy in place of the first, and a newer one too.
            if let key = content.collapseKey {
                object.string("tag", key)
            } else {
                object.uuid("tag", content.eventIdentity)
            }
            object.end()
        }
        if let unread = content.notification?.badge ?? content.unread {
            payload.integer("unread", unread)
        }
        if let data = content.data { payload.value("data", data) }
        payload.name(PayloadBlock.key)
        PayloadBlock.write(content, image: nil, to: writer)
        payload.end()
    }

    /// Writes the buttons as `showNotification` takes them.
    private static func write(_ actions: JSONValue, to writer: ByteWriter) {
        var isFirst = true
        writer.append(0x5B)
        actions.forEachElement { action in
            if !isFirst { writer.append(0x2C) }
            isFirst = false
            var object = JSONObjectWriter(writer)
            if let id = action["id"] { object.value("action", id) }
            if let title = action["title"] { object.value("title", title) }
            object.end()
        }
        writer.append(0x5D)
    }
}
