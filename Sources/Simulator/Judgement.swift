internal import Base
internal import Crypto
internal import Glibc
internal import HTTP2

/// What a request is about, as far as it can be told before it is judged.
struct RequestSubject {
    var token = ""
    var messageID: String?
    var requestID: String?
    var collapseID: String?
    var priority: String?
    var expiration: String?
    var topic: String?
    var authorization = ""
    /// The messages of a request that carries several.
    var parts: [Part] = []
    /// Whether it asks about pushes and is none.
    var isBookkeeping = false

    /// One message of several.
    struct Part {
        var token: String
        var messageID: String?
        var collapseID: String?
        var priority: String?
        var expiration: String?
    }
}

/// What a service makes of a request.
struct Judgement {
    var response: ServerResponse
    /// The reason in the answer; empty for success.
    var reason = ""
    /// What the real gateway accepts without doing what was meant, in words.
    var advisory: String?
    /// The reason for each message of a request that carries several; empty for success.
    var partReasons: [String] = []

    var isSuccess: Bool { (200..<300).contains(response.status) }
}

/// The rules of one service. Loop-confined; one per listener.
protocol Judge: AnyObject {
    /// Reads what the request is about; keeps what `judge` needs until the next call.
    func read(_ request: ServerRequest, on connection: ServerConnection) -> RequestSubject

    /// Judges the request that was read last.
    func judge(
        _ request: ServerRequest, _ subject: RequestSubject, on connection: ServerConnection
    ) -> Judgement

    /// Another answer, in the service's form.
    func answer(_ fault: FaultAnswer, _ subject: RequestSubject, at now: UnixMillis) -> Judgement
}

/// The credential a connection carried last, so that it is hashed and verified once and not with
/// every request.
struct LastCredential {
    private var bytes: [UInt8] = []
    private(set) var digest = ""

    /// Whether the value is the one seen last; if not it is remembered.
    mutating func isSame(as value: UnsafeRawBufferPointer) -> Bool {
        let isEqual = bytes.withUnsafeBytes { $0.holdsSame(as: value) }
        if isEqual { return true }
        bytes = Array(value)
        digest = String(SHA256Digest(of: value).hex.prefix(32))
        return false
    }
}

extension UnsafeRawBufferPointer {
    func holdsSame(as other: UnsafeRawBufferPointer) -> Bool {
        guard count == other.count else { return false }
        guard count > 0, let mine = baseAddress, let theirs = other.baseAddress else { return true }
        return memcmp(mine, theirs, count) == 0
    }

    func spells(_ text: StaticString) -> Bool {
        holdsSame(as: UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
    }

    var text: String { String(decoding: self, as: UTF8.self) }

    /// What follows `bearer ` in any case (RFC 9110, section 11.1), or nil.
    var bearerToken: UnsafeRawBufferPointer? {
        let scheme: StaticString = "bearer "
        guard count > scheme.utf8CodeUnitCount else { return nil }
        for index in 0..<scheme.utf8CodeUnitCount {
            let byte = self[index]
            let lower = (0x41...0x5A).contains(byte) ? byte | 0x20 : byte
            guard lower == scheme.utf8Start[index] else { return nil }
        }
        return UnsafeRawBufferPointer(rebasing: self[scheme.utf8CodeUnitCount...])
    }
}
