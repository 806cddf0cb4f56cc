internal import Base
internal import Glibc
internal import JSON
internal import Pipeline

/// An event as a file on a publisher's machine.
internal struct EventFile {
    /// The file's name, or what standard input is called.
    let name: String
    /// The bytes without the line feeds at the end.
    let bytes: [UInt8]

    /// More than any limit on events allows.
    private static let bytesMax = 8 << 20

    /// Reads a file; `-` is standard input.
    init(_ path: String) throws(Failure) {
        name = path == "-" ? "standard input" : path
        let fd = path == "-" ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC)
        guard fd >= 0 else { throw .failed("\(path): \(String(cString: strerror(errno)))") }
        defer { if fd != STDIN_FILENO { close(fd) } }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 64 << 10)
        while true {
            let count = read(fd, &chunk, chunk.count)
            if count < 0 && errno == EINTR { continue }
            guard count >= 0 else { throw .failed("\(name): \(String(cString: strerror(errno)))") }
            if count == 0 { break }
            bytes += chunk[..<count]
            guard bytes.count <= Self.bytesMax else {
                throw .failed("\(name): more than \(Self.bytesMax) bytes; this is no event")
            }
        }
        while let last = bytes.last, last == 0x0A || last == 0x0D { bytes.removeLast() }
        self.bytes = bytes
    }

    /// What the event says, or why it would become a dead letter, with the place of a mistake in
    /// the JSON.
    func examine(
        _ maximumBytes: Int = 256 << 10, takesUserFromSubject: Bool = false, at now: UnixMillis
    ) throws(EventFault) -> EventCheck.Summary {
        do throws(EventCheck.Refusal) {
            return try EventCheck.check(
                bytes, maximumBytes: maximumBytes, takesUserFromSubject: takesUserFromSubject,
                at: now)
        } catch {
            throw EventFault(
                code: error.code.rawValue, reason: error.reason,
                place: error.code == .notJSON ? jsonFault() ?? "" : "")
        }
    }

    /// `:line:column` of what is not JSON.
    private func jsonFault() -> String? {
        let parser = JSONParser(maximumBytes: Self.bytesMax)
        do throws(JSONError) {
            _ = try parser.parse(bytes)
            return nil
        } catch {
            guard let offset = error.offset else { return nil }
            let before = bytes.prefix(offset)
            let line = before.count { $0 == 0x0A } + 1
            let column = before.reversed().prefix { $0 != 0x0A }.count + 1
            return ":\(line):\(column)"
        }
    }
}

extension JSONError {
    /// Where in the document the fault is, when that is known.
    fileprivate var offset: Int? {
        switch self {
        case .tooDeep(_, let offset), .badNumber(let offset), .trailingBytes(let offset): offset
        case .badString(let offset), .notJSON(let offset): offset
        case .empty, .tooLarge, .notUTF8, .outOfMemory: nil
        }
    }
}
