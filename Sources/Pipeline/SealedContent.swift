// What only the device may read. A route that encrypts takes its words and data apart: what the
// systems need to show something stays in clear, with the route's general text in the place of the
// true one, everything else is encrypted for each target and rides in our block as `jwe`.

internal import Base
internal import Crypto
internal import Gateways
internal import JSON
internal import TokenIndex

/// Takes the words of a route apart.
internal enum SecretWords {
    /// The words of a notification that gateways and systems act on before any app runs. None of
    /// them is a text that people read; all others are secret, also those that are not known here.
    static let clear: [StaticString] = [
        "badge", "sound", "thread_id", "category", "interruption_level", "relevance_score",
        "filter_criteria", "channel_id", "icon", "color",
    ]

    /// Splits what a route wrote into what goes out in clear and what does not.
    static func split(_ root: JSONValue, clear: ByteWriter, secret: ByteWriter) {
        secret.removeAll()
        var open = JSONObjectWriter(clear)
        secret.append(0x7B)
        if let notification = root["notification"] {
            if let general = root["fallback"] {
                open.name("notification")
                writeClear(notification, general, to: clear)
                secret.append("\"notification\":")
                writeSecret(notification, to: secret)
            } else {
                // The general text is all that there is to show.
                open.value("notification", notification)
            }
        }
        if let data = root["data"] {
            secret.append(secret.count > 1 ? ",\"data\":" : "\"data\":")
            data.writeCompact(to: secret)
        }
        for name: StaticString in ["apns", "fcm", "webpush", "expo"] {
            if let override = root[name] { open.value(name, override) }
        }
        open.end()
        secret.append(0x7D)
    }

    private static func writeClear(
        _ notification: JSONValue, _ general: JSONValue, to writer: ByteWriter
    ) {
        var object = JSONObjectWriter(writer)
        for name: StaticString in ["title", "body"] {
            if let text = general[name] { object.value(name, text) }
        }
        for name in clear {
            if let value = notification[name] { object.value(name, value) }
        }
        // Apple's way of letting the app put the true text in the place of the general one.
        object.bool("mutable_content", true)
        object.end()
    }

    private static func writeSecret(_ notification: JSONValue, to writer: ByteWriter) {
        let start = writer.count
        _ = notification.writeMembers(to: writer) { name in
            clear.contains { name.elementsEqual(bytes(of: $0)) }
        }
        // Members come with a comma before each; the first one's place is the brace's.
        if writer.count == start { writer.append(0x2C) }
        writer.overwrite(at: start, count: 1) { $0[0] = 0x7B }
        writer.append(0x7D)
    }

    private static func bytes(of name: StaticString) -> UnsafeRawBufferPointer {
        UnsafeRawBufferPointer(start: name.utf8Start, count: name.utf8CodeUnitCount)
    }
}

/// Encrypts for one target after the other. Confined to one thread.
internal final class SealedContent {
    /// What came of it.
    enum Answer {
        /// The content carries what is encrypted.
        case sealed
        case refused(Outcome, Reason, String)
    }

    private let reader = DeviceKeyReader()
    private let sealer = try? ContentSealer()
    private let message = ByteWriter(capacity: 4096)
    private let producer = ByteWriter(capacity: 64)

    /// Encrypts `secret` for an address and hands it to the content, until the next call.
    ///
    /// The header names the app (`apu`) and the message (`apv`, the 16 bytes of its id), so that a
    /// device notices what belongs to another push.
    func seal(
        _ secret: UnsafeRawBufferPointer, as content: PushContent, app: String,
        for address: DeviceAddress
    ) -> Answer {
        content.sealed = nil
        let key: DeviceKey
        switch reader.choose(from: address.publicKeys) {
        case .key(let choice): key = choice
        case .absent: return .refused(.suppressed, .noDeviceKey, "")
        case .unusable(let flaw): return .refused(.rejected, .malformedDeviceKey, flaw)
        }
        guard let sealer else {
            return .refused(.rejected, .encryptionFailed, "the encryption is not available")
        }
        producer.removeAll()
        producer.append(app)
        message.removeAll()
        var failure: OpenSSLError?
        content.messageID.bytes.withUnsafeBytes { id in
            do throws(OpenSSLError) {
                try sealer.seal(
                    secret, for: key, producer: producer.bytes, recipient: id, into: message)
            } catch { failure = error }
        }
        if let failure { return .refused(.rejected, .encryptionFailed, failure.description) }
        content.sealed = message
        return .sealed
    }
}
