// Encrypted content as a device finds it: the text under `bugle.jwe`.

public import Crypto
internal import Base
internal import JSON

/// A JSON Web Encryption in its compact form (RFC 7516, section 3.1), taken apart.
public struct SealedMessage: Sendable {
    /// The key that it was encrypted for.
    public let keyID: String
    /// The app that sent it (`apu`).
    public let app: String
    /// The message that it belongs to (`apv`), the 16 bytes of `bugle.id`.
    public let messageID: [UInt8]

    private let parts: DevicePrivateKey.Parts

    /// Reads a message; nil when it is none of ECDH-ES with A256GCM.
    public init?(_ text: String) {
        let pieces = text.split(separator: ".", omittingEmptySubsequences: false)
        guard pieces.count == 5, pieces[1].isEmpty else { return nil }
        let decoded = pieces.map { Base64URL.decode($0.utf8) }
        guard let header = decoded[0], let nonce = decoded[2], let sealed = decoded[3],
            let tag = decoded[4], let root = try? JSONParser().parse(header),
            root["alg"]?.string == "ECDH-ES", root["enc"]?.string == "A256GCM",
            let keyID = root["kid"]?.string, let key = root["epk"],
            key["kty"]?.string == "EC", key["crv"]?.string == "P-256",
            let x = Self.bytes(key["x"]), let y = Self.bytes(key["y"]),
            let producer = Self.bytes(root["apu"]), let recipient = Self.bytes(root["apv"])
        else { return nil }
        self.keyID = keyID
        app = String(decoding: producer, as: UTF8.self)
        messageID = recipient
        parts = DevicePrivateKey.Parts(
            header: Array(pieces[0].utf8), x: x, y: y, producer: producer, recipient: recipient,
            nonce: nonce, text: sealed, tag: tag)
    }

    private static func bytes(_ value: JSONValue?) -> [UInt8]? {
        value?.stringBytes.flatMap { Base64URL.decode($0) }
    }

    /// What it says; nil when it is for another key or was changed.
    public func open(with key: DevicePrivateKey) -> [UInt8]? { key.open(parts) }
}
