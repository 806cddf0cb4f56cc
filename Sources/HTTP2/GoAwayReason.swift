// APNs explains a GOAWAY in its debug data: {"reason":"…"}, with the strings of its error table.
// Debug data is free text by the protocol, so this looks for one member and gives up quietly.

/// What the debug data of a GOAWAY says.
struct GoAwayReason: Equatable {
    /// The gateway's own word, for logs and alarms.
    let text: String

    /// Whether the credentials are at fault: dialling again with the same ones cannot help.
    var blamesCredentials: Bool { Self.credentialReasons.contains(text) }

    /// Whether the peer ends the connection in the normal course of things.
    var isRoutine: Bool { text == "IdleTimeout" || text == "Shutdown" }

    /// Not among them: what a newer token or a pause cures, such as `ExpiredProviderToken`.
    private static let credentialReasons: Set<String> = [
        "BadCertificate", "BadCertificateEnvironment", "BadEnvironmentKeyIdInToken",
        "BadEnvironmentKeyInToken", "Forbidden", "InvalidProviderToken", "MissingProviderToken",
    ]

    /// The reason in the debug data, or nil when there is none.
    init?(debugData: some Collection<UInt8>) {
        let bytes = Array(debugData.prefix(Limits.debugDataBytesMax))
        let key = Array("\"reason\"".utf8)
        guard bytes.count > key.count,
            let start = (0...bytes.count - key.count).first(where: {
                bytes[$0..<$0 + key.count].elementsEqual(key)
            })
        else { return nil }
        var rest = bytes[(start + key.count)...].drop(while: Self.isSpace)
        guard rest.popFirst() == UInt8(ascii: ":") else { return nil }
        rest = rest.drop(while: Self.isSpace)
        guard rest.popFirst() == UInt8(ascii: "\"") else { return nil }
        let word = rest.prefix(while: Self.isWord)
        guard !word.isEmpty, rest.dropFirst(word.count).first == UInt8(ascii: "\"") else {
            return nil
        }
        text = String(decoding: word, as: UTF8.self)
    }

    private static func isSpace(_ byte: UInt8) -> Bool {
        byte == 0x20 || byte == 0x09 || byte == 0x0A || byte == 0x0D
    }

    private static func isWord(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x5F, 0x2D: true
        default: false
        }
    }
}
