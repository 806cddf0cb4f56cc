internal import Base
internal import JSON

/// Writes APNs payloads: `aps`, the event's data beside it, and our block.
internal enum APNsPayload {
    /// The members of the payload that an event's data cannot set.
    static func isProtected(_ name: UnsafeRawBufferPointer) -> Bool {
        name.spells("aps") || name.spells(PayloadBlock.key)
    }

    /// Writes the whole payload and returns where the message's id stands in it.
    static func write(
        _ content: borrowing PushContent, as type: APNsPushType, to writer: ByteWriter,
        _ notes: inout RenderingNotes
    ) -> Int {
        writer.append("{\"aps\":")
        writeAPS(content, as: type, to: writer)
        writer.append(",\"bugle\":")
        let idOffset = writer.count + PayloadBlock.idOffset
        let image = content.notification?.image
        PayloadBlock.write(content, image: image, to: writer)
        // What an event's data cannot set is left out.
        if content.data?.writeMembers(to: writer, leavingOut: isProtected) ?? false {
            notes.insert(.droppedReservedKeys)
        }
        writer.append(0x7D)
        return idOffset
    }

    /// Writes the payload of a device management push: the event's data and nothing else.
    static func writeManagement(_ content: borrowing PushContent, to writer: ByteWriter) {
        if let data = content.data { data.writeCompact(to: writer) } else { writer.append("{}") }
    }

    /// Writes the `aps` object.
    static func writeAPS(
        _ content: borrowing PushContent, as type: APNsPushType, to writer: ByteWriter
    ) {
        var aps = JSONObjectWriter(writer)
        switch type {
        case .background:
            aps.integer("content-available", 1)
        case .controls, .widgets:
            aps.bool("content-changed", true)
        case .liveactivity:
            aps.integer("timestamp", content.now.seconds)
        default:
            if let notification = content.notification {
                writeNotification(notification, unread: content.unread, into: &aps)
                writeInterruption(content.importance, notification, into: &aps)
            } else if let unread = content.unread, type == .alert {
                aps.integer("badge", unread)
            }
        }
        aps.end()
    }

    private static func writeInterruption(
        _ importance: Importance?, _ notification: NotificationContent,
        into aps: inout JSONObjectWriter
    ) {
        guard let importance, importance.isUnusual,
            !notification.hasInterruptionLevel, notification.isVisible
        else { return }
        aps.literal("interruption-level", importance.interruptionLevel)
    }

    private static func writeNotification(
        _ notification: NotificationContent, unread: Int64?,
        into aps: inout JSONObjectWriter
    ) {
        if notification.hasAlert {
            aps.name("alert")
            var alert = JSONObjectWriter(aps.bytes)
            for entry in notification.entries {
                if case .alert(let name) = entry.apns { alert.value(name, entry.value) }
            }
            alert.end()
        }
        for entry in notification.entries {
            switch entry.apns {
            case .aps(let name): aps.value(name, entry.value)
            case .flag(let name) where entry.value.bool == true: aps.integer(name, 1)
            default: break
            }
        }
        if notification.badge == nil, let unread { aps.integer("badge", unread) }
        if notification.image != nil, !notification.asksForExtension {
            aps.integer("mutable-content", 1)
        }
    }
}
