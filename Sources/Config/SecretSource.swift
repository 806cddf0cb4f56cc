public import Base
internal import Glibc

/// Where a secret comes from. Files are read when the secret is needed, so that a rotated file
/// takes effect on the next read.
public enum SecretSource: Sendable, Equatable {
    /// The largest secret in a file, in bytes.
    public static let fileBytesMax = 64 << 10

    /// A value out of the environment.
    case value(Secret<String>)
    /// A file by its absolute path, or relative to the working directory.
    case file(String)

    /// The secret; of a file, the text without the line feeds at its end.
    public func read() throws(SecretSourceError) -> Secret<String> {
        switch self {
        case .value(let secret):
            return secret
        case .file(let path):
            var bytes = try FileBytes.read(path, limit: Self.fileBytesMax)
            while let last = bytes.last, last == 0x0A || last == 0x0D { bytes.removeLast() }
            guard let text = String(validating: bytes, as: UTF8.self) else {
                throw SecretSourceError(path: path, message: "is not UTF-8 text")
            }
            return Secret(text)
        }
    }
}

/// Why a file could not be read.
public struct SecretSourceError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The file.
    public let path: String
    /// What is wrong with it.
    public let message: String

    /// `/etc/bugle/AuthKey.p8: No such file or directory`
    public var description: String { "\(path): \(message)" }
}

/// Reads small files.
internal enum FileBytes {
    static func read(_ path: String, limit: Int) throws(SecretSourceError) -> [UInt8] {
        let fd = open(path, O_RDONLY | O_CLOEXEC)
        if fd < 0 { throw failure(path) }
        defer { close(fd) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 16 << 10)
        while true {
            let count = Glibc.read(fd, &chunk, chunk.count)
            if count < 0 && errno == EINTR { continue }
            if count < 0 { throw failure(path) }
            if count == 0 { return bytes }
            bytes += chunk[..<count]
            if bytes.count > limit {
                throw SecretSourceError(path: path, message: "is larger than \(limit) bytes")
            }
        }
    }

    /// Why a file cannot be opened for reading; nil when it can.
    static func openingFault(_ path: String) -> String? {
        let fd = open(path, O_RDONLY | O_CLOEXEC)
        if fd < 0 { return String(cString: strerror(errno)) }
        close(fd)
        return nil
    }

    private static func failure(_ path: String) -> SecretSourceError {
        SecretSourceError(path: path, message: String(cString: strerror(errno)))
    }
}
