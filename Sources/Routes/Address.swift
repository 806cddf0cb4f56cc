// Addresses in notifications: where a tap leads and where an image comes from.

internal import Base

internal enum Address {
    /// The scheme in lower case; nil when there is none, or the text holds a blank or a control
    /// character.
    static func scheme(of text: UnsafeRawBufferPointer) -> String? {
        guard let colon = text.firstIndex(of: 0x3A), colon > 0, colon + 1 < text.count,
            isPlain(text)
        else { return nil }
        let scheme = text[..<colon]
        guard let first = scheme.first, isLetter(first),
            scheme.allSatisfy({
                isLetter($0) || (0x30...0x39).contains($0) || $0 == 0x2B || $0 == 0x2D || $0 == 0x2E
            })
        else { return nil }
        return String(decoding: scheme, as: UTF8.self).lowercased()
    }

    /// The host of an https address in lower case; nil for anything else, and for addresses with
    /// a user name, which can make one host look like another.
    static func secureHost(of text: UnsafeRawBufferPointer) -> String? {
        guard scheme(of: text) == "https" else { return nil }
        let rest = text[6...]
        guard rest.count > 2, rest.starts(with: [0x2F, 0x2F]) else { return nil }
        let authority = rest.dropFirst(2).prefix { $0 != 0x2F && $0 != 0x3F && $0 != 0x23 }
        guard !authority.contains(0x40), !authority.contains(0x5C) else { return nil }
        let host = authority.prefix { $0 != 0x3A }
        guard !host.isEmpty, host.allSatisfy({ $0 > 0x20 && $0 < 0x7F && $0 != 0x25 }) else {
            return nil
        }
        return String(decoding: host, as: UTF8.self).lowercased()
    }

    /// Whether a host is on a list of hosts; `*.` in front of one stands for any subdomain.
    static func isListed(_ host: String, in list: [String]) -> Bool {
        list.contains { entry in
            entry.hasPrefix("*.") ? host.hasSuffix(entry.dropFirst()) : host == entry
        }
    }

    private static func isLetter(_ byte: UInt8) -> Bool {
        (0x61...0x7A).contains(byte | 0x20)
    }

    private static func isPlain(_ text: UnsafeRawBufferPointer) -> Bool {
        text.allSatisfy { $0 > 0x20 && $0 != 0x7F }
    }
}
