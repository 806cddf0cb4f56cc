// A client that writes frames byte by byte, for what no correct client does.

import Base
import Crypto
import Glibc

/// A frame as it came.
struct RawFrame: Equatable {
    let type: UInt8
    let flags: UInt8
    let stream: UInt32
    let payload: [UInt8]

    /// The 32 bits at an offset of the payload.
    func word(at offset: Int) -> UInt32 {
        payload[offset..<offset + 4].reduce(0) { $0 << 8 | UInt32($1) }
    }
}

final class RawClient {
    private let fd: Int32
    private let tls: TLSSession
    private var input: [UInt8] = []

    /// Connects and sends the preface with an empty SETTINGS frame.
    init?(port: UInt16, caPEM: String) throws {
        let descriptor = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        fd = descriptor
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
        let result = withUnsafePointer(to: &address) { pointer in
            pointer.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(descriptor, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        // The socket blocks, so that reading waits for the server, but not for ever.
        var patience = timeval(tv_sec: 5, tv_usec: 0)
        setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, socklen_t(MemoryLayout<timeval>.size))
        let path = "/tmp/bugle-raw-\(getpid())-\(UInt64.random(in: .min ... .max)).pem"
        guard let file = fopen(path, "w") else { return nil }
        fputs(caPEM, file)
        fclose(file)
        defer { unlink(path) }
        tls = try TLSSession(
            client: TLSContext.client(caFile: path, alpn: ["h2"]), fd: fd, hostName: "localhost")
        guard result == 0, tls.handshake() == .done else { return nil }
        write(Array("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".utf8))
        frame(type: 4)
    }

    deinit { close(fd) }

    func frame(type: UInt8, flags: UInt8 = 0, stream: UInt32 = 0, _ payload: [UInt8] = []) {
        var bytes: [UInt8] = [
            UInt8(payload.count >> 16), UInt8(payload.count >> 8 & 255), UInt8(payload.count & 255),
            type, flags,
        ]
        bytes += withUnsafeBytes(of: stream.bigEndian) { Array($0) }
        write(bytes + payload)
    }

    /// A POST; HEADERS without DATA unless there is a body.
    func request(stream: UInt32, path: String, _ fields: [(String, String)] = [], body: String = "")
    {
        var block: [UInt8] = []
        let pseudo = [(":method", "POST"), (":scheme", "https"), (":path", path)]
        for (name, value) in pseudo + [(":authority", "localhost")] + fields {
            // A literal without indexing and with a new name (RFC 7541, section 6.2.2).
            block.append(0)
            block += Self.string(name) + Self.string(value)
        }
        frame(type: 1, flags: body.isEmpty ? 5 : 4, stream: stream, block)
        if !body.isEmpty { frame(type: 0, flags: 1, stream: stream, Array(body.utf8)) }
    }

    /// Reads frames until one meets the condition, and returns all that came; SETTINGS are
    /// acknowledged on the way. Stops at the end of the connection.
    func frames(until isLast: (RawFrame) -> Bool) -> [RawFrame] {
        var frames: [RawFrame] = []
        while let frame = next() {
            frames.append(frame)
            if frame.type == 4, frame.flags == 0 { self.frame(type: 4, flags: 1) }
            if isLast(frame) { break }
        }
        return frames
    }

    private func next() -> RawFrame? {
        while true {
            if input.count >= 9 {
                let length = Int(input[0]) << 16 | Int(input[1]) << 8 | Int(input[2])
                if input.count >= 9 + length {
                    let frame = RawFrame(
                        type: input[3], flags: input[4],
                        stream: input[5..<9].reduce(0) { $0 << 8 | UInt32($1) },
                        payload: Array(input[9..<9 + length]))
                    input.removeFirst(9 + length)
                    return frame
                }
            }
            var buffer = [UInt8](repeating: 0, count: 16_384)
            let result = buffer.withUnsafeMutableBytes { tls.read(into: $0) }
            guard case .count(let count) = result else { return nil }
            input += buffer[..<count]
        }
    }

    private func write(_ bytes: [UInt8]) {
        _ = bytes.withUnsafeBytes { tls.write($0) }
    }

    private static func string(_ text: String) -> [UInt8] {
        let count = text.utf8.count
        if count < 127 { return [UInt8(count)] + Array(text.utf8) }
        var length: [UInt8] = [127]
        var rest = count - 127
        while rest >= 128 {
            length.append(UInt8(rest & 127 | 128))
            rest >>= 7
        }
        return length + [UInt8(rest)] + Array(text.utf8)
    }
}
