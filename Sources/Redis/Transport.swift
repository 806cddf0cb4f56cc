// Bytes to and from a server, plain or inside TLS.

internal import Base
internal import Crypto
internal import EventLoop

internal enum Transport {
    case plain(Int32)
    case secured(Int32, TLSSession)

    /// What came of a read or a write.
    enum Result {
        case count(Int)
        case wouldBlock
        /// The peer closed the connection.
        case closed
        case failed(RedisError)
    }

    /// Whether bytes may wait inside although the descriptor is not readable.
    var buffersInput: Bool {
        switch self {
        case .plain: false
        case .secured: true
        }
    }

    func read(into buffer: UnsafeMutableRawBufferPointer) -> Result {
        switch self {
        case .plain(let fd): Self.result(SocketIO.read(fd, into: buffer))
        case .secured(_, let session): Self.result(session.read(into: buffer))
        }
    }

    func write(_ bytes: UnsafeRawBufferPointer) -> Result {
        switch self {
        case .plain(let fd): Self.result(SocketIO.write(fd, bytes))
        case .secured(_, let session): Self.result(session.write(bytes))
        }
    }

    func close() {
        switch self {
        case .plain(let fd): SocketIO.close(fd)
        case .secured(let fd, let session):
            session.close()
            SocketIO.close(fd)
        }
    }

    private static func result(_ result: IOResult) -> Result {
        switch result {
        case .count(let count): .count(count)
        case .wouldBlock: .wouldBlock
        case .closed: .closed
        case .failed(let error): .failed(.failed(error))
        }
    }

    private static func result(_ result: TLSResult) -> Result {
        switch result {
        case .count(let count): .count(count)
        case .wantsRead, .wantsWrite: .wouldBlock
        case .closed: .closed
        case .failed(let error): .failed(.tlsFailed(error))
        }
    }
}
