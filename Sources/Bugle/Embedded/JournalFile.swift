internal import Base
internal import Glibc
internal import JSON
internal import Simulator
internal import Synchronization

/// Writes what the simulated gateways receive to a file, one JSON object a line, each line before
/// its request is answered: whoever has the answer finds the line.
internal final class JournalFile: Sendable {
    private struct Output: ~Copyable, Sendable {
        let fd: Int32
        var hasFailed = false
    }

    private let output: Mutex<Output>
    private let path: String

    init(_ path: String) throws(Failure) {
        let fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0o600)
        guard fd >= 0 else {
            throw .failed("\(path) cannot be written: \(String(cString: strerror(errno)))")
        }
        output = Mutex(Output(fd: fd))
        self.path = path
    }

    deinit { output.withLock { _ = close($0.fd) } }

    /// Appends the line of an entry. A file that cannot be written is complained about once; a
    /// journal with holes must not pass for a whole one, so nothing follows.
    func append(_ entry: JournalEntry) {
        let line = ByteWriter(capacity: 512)
        entry.writeJSON(to: line)
        line.append(0x0A)
        output.withLock { output in
            guard !output.hasFailed else { return }
            let count = write(output.fd, line.bytes.baseAddress, line.count)
            guard count != line.count else { return }
            output.hasFailed = true
            Terminal.note("\(path): the journal ends here: \(String(cString: strerror(errno)))")
        }
    }
}

extension JournalEntry {
    /// The entry as one object. The tokens are those of simulated devices.
    fileprivate func writeJSON(to bytes: ByteWriter) {
        var object = JSONObjectWriter(bytes)
        object.integer("at", at.value)
        object.string("service", service.rawValue)
        object.string("fate", fate.name)
        object.integer("status", Int64(status))
        object.string("reason", reason)
        object.string("message_id", orNull: messageID)
        object.string("token", token)
        object.string("apns_id", orNull: apnsID)
        object.string("collapse_id", orNull: collapseID)
        object.string("priority", orNull: priority)
        object.string("expiration", orNull: expiration)
        object.string("topic", orNull: topic)
        object.integer("connection", Int64(connection))
        object.integer("stream", Int64(stream))
        if !body.isEmpty { object.string("body", Base64URL.encode(body)) }
        object.end()
    }
}

extension RequestFate {
    fileprivate var name: String {
        switch self {
        case .answered: "answered"
        case .unanswered: "unanswered"
        case .notProcessed: "not_processed"
        }
    }
}
