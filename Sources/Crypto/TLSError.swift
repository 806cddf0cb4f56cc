// Errors of the TLS library, read from its per-thread queue at once, before anything else can
// overwrite them.

internal import COpenSSL
internal import Glibc

/// Why TLS could not be set up or broke down.
public struct TLSError: Error, Equatable, Sendable, CustomStringConvertible {
    /// What went wrong, in a form that decides what to do.
    public enum Kind: Equatable, Sendable {
        /// A certificate, key or CA file could not be used; a configuration fault.
        case material
        /// The peer's certificate was refused: chain, name or date; a configuration fault.
        case verification
        /// The peer refused our protocol versions or something else of ours; a configuration fault.
        case refused
        /// The peer refused the certificate that we showed: a fault of the credential.
        case ownCertificate
        /// The connection broke or the peer spoke nonsense.
        case connection
    }

    /// The kind of error.
    public let kind: Kind
    /// The library's own words, with what was attempted.
    public let text: String

    /// An error with the given words.
    public init(_ kind: Kind, _ text: String) {
        self.kind = kind
        self.text = text
    }

    /// What was attempted and what failed.
    public var description: String { text }

    /// The newest error of this thread's queue, which is emptied.
    internal static func newest(_ kind: Kind, _ attempted: String) -> TLSError {
        let code = ERR_peek_last_error()
        ERR_clear_error()
        guard code != 0, let reason = ERR_reason_error_string(code) else {
            return TLSError(kind, attempted)
        }
        return TLSError(kind, "\(attempted): \(String(cString: reason))")
    }
}
