public import Base

/// An app's access to Expo's push service.
public struct ExpoCredential: Sendable, Equatable {
    /// `Bearer` and the access token; nil for a project without enhanced push security.
    internal let header: Secret<[UInt8]>?

    /// Whether there is no access token.
    public var isEmpty: Bool { header == nil }

    /// An access token as Expo's website hands it out; nil when the project asks for none. Returns
    /// nil when it cannot stand in a header field.
    public init?(accessToken: Secret<String>?) {
        guard let accessToken else {
            header = nil
            return
        }
        let text = accessToken.exposed
        guard (1...4096).contains(text.utf8.count),
            text.utf8.allSatisfy({ (0x21...0x7E).contains($0) })
        else { return nil }
        header = Secret(Array("Bearer \(text)".utf8))
    }
}

/// The push tokens of Expo.
public enum ExpoToken {
    /// Whether a text has one of the three forms of a token.
    public static func isToken(_ token: UnsafeRawBufferPointer) -> Bool {
        guard (1...ExpoLimits.tokenBytesMax).contains(token.count),
            token.allSatisfy({ (0x21...0x7E).contains($0) && $0 != 0x22 && $0 != 0x5C })
        else { return false }
        for prefix in ["ExponentPushToken[", "ExpoPushToken["] where token.starts(with: prefix.utf8)
        {
            return token.last == 0x5D && token.count > prefix.utf8.count + 1
        }
        return isUUIDLike(token)
    }

    private static func isUUIDLike(_ token: UnsafeRawBufferPointer) -> Bool {
        guard token.count == 36 else { return false }
        return token.enumerated().allSatisfy { index, byte in
            [8, 13, 18, 23].contains(index)
                ? byte == 0x2D
                : (0x30...0x39).contains(byte) || (0x61...0x7A).contains(byte | 0x20)
        }
    }

    /// A text of Expo's with every token in it replaced: its messages quote them.
    internal static func redact(_ text: String) -> String {
        var result = ""
        var rest = text[...]
        while let start = firstToken(in: rest) {
            result += rest[..<start]
            result += "[token]"
            guard let end = rest[start...].firstIndex(of: "]") else { return result }
            rest = rest[rest.index(after: end)...]
        }
        return result + rest
    }

    private static func firstToken(in text: Substring) -> Substring.Index? {
        var index = text.startIndex
        while index < text.endIndex {
            let rest = text[index...]
            if rest.hasPrefix("ExponentPushToken[") || rest.hasPrefix("ExpoPushToken[") {
                return index
            }
            index = text.index(after: index)
        }
        return nil
    }
}
