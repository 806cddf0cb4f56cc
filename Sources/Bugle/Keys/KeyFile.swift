// Files with keys. A private key goes into a file that nobody else can read, and nowhere else.

internal import Base
internal import Config
internal import Glibc

internal enum KeyFile {
    /// Writes a private key into a new file that only its owner may read.
    static func write(_ text: String, to path: String) throws(Failure) {
        let fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0o600)
        guard fd >= 0 else {
            guard errno != EEXIST else {
                throw .failed(
                    "\(path): is there already; a key that is overwritten is lost, so name another "
                        + "file")
            }
            throw .failed("\(path): \(String(cString: strerror(errno)))")
        }
        // The mask of the process may only take rights away, but a file system may have its own.
        var isWritten = fchmod(fd, 0o600) == 0
        let bytes = Array(text.utf8)
        var written = 0
        while isWritten && written < bytes.count {
            let count = bytes[written...].withUnsafeBytes {
                Glibc.write(fd, $0.baseAddress, $0.count)
            }
            if count > 0 { written += count } else if errno != EINTR { isWritten = false }
        }
        isWritten = isWritten && fsync(fd) == 0
        let fault = errno
        close(fd)
        guard isWritten else {
            unlink(path)
            throw .failed("\(path): \(String(cString: strerror(fault)))")
        }
    }

    /// The text of a file; `-` is standard input.
    static func read(_ path: String) throws(Failure) -> String {
        let bytes = try EventFile(path).bytes
        guard bytes.count <= SecretSource.fileBytesMax,
            let text = String(validating: bytes, as: UTF8.self)
        else {
            throw .failed(
                "\(path): no key: not text, or more than \(SecretSource.fileBytesMax) bytes")
        }
        return text
    }

    /// What to say of a file that others may read; nil when they may not.
    static func exposure(of path: String) -> String? {
        var facts = stat()
        guard path != "-", stat(path, &facts) == 0, facts.st_mode & 0o077 != 0 else { return nil }
        let mode = String(facts.st_mode & 0o777, radix: 8)
        return "mode \(mode): others may read or change it; say chmod 600 \(path)"
    }
}
