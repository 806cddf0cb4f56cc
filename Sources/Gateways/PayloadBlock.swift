internal import Base
internal import JSON

/// The small block that every payload carries under the key `bugle`.
internal enum PayloadBlock {
    /// The key; events cannot set it.
    static let key: StaticString = "bugle"

    /// Where in the block the message's id stands.
    static let idOffset = "{\"id\":\"".utf8.count

    /// Writes the block as a JSON object.
    static func write(_ content: borrowing PushContent, image: JSONValue?, to writer: ByteWriter) {
        var block = JSONObjectWriter(writer)
        block.uuid("id", content.messageID)
        block.string("type", content.eventType)
        if let audience = content.audience { block.string("aud", audience) }
        if let image { block.value("image", image) }
        if let cursor = content.cursor {
            block.name("cursor")
            var object = JSONObjectWriter(writer)
            object.string("log", cursor.log)
            object.integer("seq", cursor.seq)
            object.end()
        }
        block.end()
    }
}
