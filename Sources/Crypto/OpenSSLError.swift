internal import COpenSSL

/// A call of the cryptographic library that failed although its input was checked before.
public struct OpenSSLError: Error, CustomStringConvertible {
    /// What was attempted.
    public let operation: StaticString
    /// The library's own words; they hold no key material.
    public let reason: String

    /// Takes the newest entry of this thread's error queue and empties the queue.
    internal init(_ operation: StaticString) {
        self.operation = operation
        let code = ERR_peek_last_error()
        ERR_clear_error()
        guard code != 0 else {
            reason = "no reason given"
            return
        }
        reason = withUnsafeTemporaryAllocation(of: CChar.self, capacity: 256) { text in
            ERR_error_string_n(code, text.baseAddress, text.count)
            return text.baseAddress.map { String(cString: $0) } ?? ""
        }
    }

    /// One line for a log or a terminal.
    public var description: String { "\(operation) failed: \(reason)" }
}
