// PEM text (RFC 7468) as it really arrives: from a file, or through an environment variable or a
// YAML scalar that turned newlines into `\n`, blanks or nothing. The bytes inside must still be
// exact; only the wrapping is forgiven.

internal import Base

/// Why a key, in PEM or not, cannot be used. Names the setting, never the key.
public struct KeyError: Error, Equatable, CustomStringConvertible {
    /// The setting that named the key.
    public let setting: String
    /// What is wrong and what to do.
    public let problem: String

    /// An error about one setting.
    public init(setting: String, problem: String) {
        self.setting = setting
        self.problem = problem
    }

    /// One line for a terminal.
    public var description: String { "\(setting): \(problem)" }
}

/// One block of PEM: its label and the bytes inside.
public struct PEM: Equatable, Sendable {
    /// The words between `BEGIN` and the dashes, such as `PRIVATE KEY`.
    public let label: String
    /// The decoded body.
    public let der: [UInt8]

    private static let begin = Array("-----BEGIN ".utf8)
    private static let end = Array("-----END ".utf8)
    private static let dashes = Array("-----".utf8)

    /// Reads the first block of a text; `setting` names the text in errors.
    public init(_ text: String, setting: String) throws(KeyError) {
        func refuse(_ problem: String) -> KeyError { KeyError(setting: setting, problem: problem) }
        let bytes = Self.unescaped(text)
        guard let beginning = Self.find(Self.begin, in: bytes, from: 0) else {
            throw refuse(
                bytes.contains { !Self.isBlank($0) }
                    ? "not PEM: the line '-----BEGIN ...-----' is missing; give the whole file"
                    : "empty; give the PEM text of the key")
        }
        let labelStart = beginning + Self.begin.count
        guard let labelEnd = Self.find(Self.dashes, in: bytes, from: labelStart) else {
            throw refuse("not PEM: the line '-----BEGIN' is cut short")
        }
        let bodyStart = labelEnd + Self.dashes.count
        guard let bodyEnd = Self.find(Self.end, in: bytes, from: bodyStart) else {
            throw refuse("PEM cut short: the line '-----END ...-----' is missing")
        }
        label = String(decoding: bytes[labelStart..<labelEnd], as: UTF8.self)
        let ending = Self.end + Array(label.utf8) + Self.dashes
        guard bytes[bodyEnd...].starts(with: ending) else {
            throw refuse("PEM damaged: the BEGIN and END lines do not agree")
        }
        let body = bytes[bodyStart..<bodyEnd].filter { !Self.isBlank($0) }
        guard !body.contains(UInt8(ascii: ":")), !label.hasPrefix("ENCRYPTED") else {
            throw refuse("the key is encrypted with a passphrase; store it decrypted")
        }
        guard let decoded = Base64URL.decode(body), !decoded.isEmpty else {
            throw refuse("PEM damaged: the text between the BEGIN and END lines is not base64")
        }
        der = decoded
    }

    /// The bytes of the text with a literal backslash-n or backslash-r turned into a newline.
    private static func unescaped(_ text: String) -> [UInt8] {
        let source = Array(text.utf8)
        var result: [UInt8] = []
        result.reserveCapacity(source.count)
        var index = 0
        while index < source.count {
            let isEscape =
                source[index] == UInt8(ascii: "\\") && index + 1 < source.count
                && (source[index + 1] == UInt8(ascii: "n")
                    || source[index + 1] == UInt8(ascii: "r"))
            result.append(isEscape ? UInt8(ascii: "\n") : source[index])
            index += isEscape ? 2 : 1
        }
        return result
    }

    private static func isBlank(_ byte: UInt8) -> Bool {
        byte == 0x20 || (0x09...0x0D).contains(byte)
    }

    private static func find(_ pattern: [UInt8], in bytes: [UInt8], from start: Int) -> Int? {
        var index = start
        while index + pattern.count <= bytes.count {
            if bytes[index...].starts(with: pattern) { return index }
            index += 1
        }
        return nil
    }
}
