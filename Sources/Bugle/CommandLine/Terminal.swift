internal import Base
internal import Glibc

/// What a command says: results to standard output, everything else to standard error.
internal enum Terminal {
    /// Whether a person reads standard output.
    static var isInteractive: Bool { isatty(STDOUT_FILENO) == 1 }

    /// Whether a person reads standard error.
    static var showsProgress: Bool { isatty(STDERR_FILENO) == 1 }

    /// Writes a line of the result. When nobody reads it any more the process ends, as the first
    /// command of a pipe does.
    static func print(_ line: String) { write(line + "\n", to: STDOUT_FILENO) }

    /// Writes a line about the work.
    static func note(_ line: String) { write(line + "\n", to: STDERR_FILENO) }

    /// Replaces the line of progress; only for terminals.
    static func progress(_ line: String) { write("\r\u{1B}[K" + line, to: STDERR_FILENO) }

    /// Takes the line of progress away.
    static func endProgress() { write("\r\u{1B}[K", to: STDERR_FILENO) }

    private static func write(_ text: String, to fd: Int32) {
        var text = text
        text.withUTF8 { bytes in
            var written = 0
            while written < bytes.count {
                let count = Glibc.write(
                    fd, bytes.baseAddress?.advanced(by: written), bytes.count - written)
                if count > 0 {
                    written += count
                } else if errno == EAGAIN {
                    var waiting = pollfd(fd: fd, events: Int16(POLLOUT), revents: 0)
                    poll(&waiting, 1, 1000)
                } else if errno != EINTR {
                    // Standard error may be gone while the work is still wanted.
                    if fd == STDOUT_FILENO { _exit(ExitCode.failed.rawValue) }
                    return
                }
            }
        }
    }
}

extension String {
    /// The text, filled with spaces up to a width.
    func padded(to width: Int) -> String {
        self + String(repeating: " ", count: max(width - count, 0))
    }

    /// The text behind as many spaces as a width needs.
    func aligned(to width: Int) -> String {
        String(repeating: " ", count: max(width - count, 0)) + self
    }

    /// The text with everything that a terminal would act on replaced.
    var printable: String {
        String(String.UnicodeScalarView(unicodeScalars.map { Self.isControl($0) ? "?" : $0 }))
    }

    private static func isControl(_ scalar: Unicode.Scalar) -> Bool {
        scalar.value < 0x20 || (0x7F...0x9F).contains(scalar.value)
    }
}
