// A listening socket that turns accepted connections into server connections, or mistreats them
// before TLS is up.

public import Crypto
public import EventLoop
internal import Glibc

/// What becomes of a connection that is about to be accepted.
public enum Acceptance: Sendable, Hashable {
    /// It is served.
    case serve
    /// TLS fails: bytes that are no TLS record are sent and the connection is closed.
    case breakTLS
    /// The connection is accepted and nothing is ever sent.
    case stallTLS
    /// TLS comes up, but HTTP/2 is not offered.
    case withoutHTTP2
    /// The connection is reset at once.
    case reset
}

/// Accepts HTTP/2 connections over TLS on one loop. Loop-confined.
public final class HTTP2Listener {
    /// The port that is listened on.
    public let port: UInt16

    /// Decides about each connection by its number, counted from 1.
    public var acceptance: (Int) -> Acceptance = { _ in .serve }

    /// What the connections accepted from now on tell their peers.
    public var options: ServerOptions

    /// Connections accepted so far, whatever became of them.
    public private(set) var accepted = 0

    /// Connections that are open, by number.
    public private(set) var connections: [Int: ServerConnection] = [:]

    private let loop: EventLoop
    private let context: TLSContext
    private let otherContext: TLSContext
    private let delegate: any ServerConnectionDelegate
    private var fd: Int32
    private var registration: Registration?
    private var stalled: [Int32] = []
    private let readBuffer = UnsafeMutableRawBufferPointer.allocate(
        byteCount: ServerLimits.readBytes, alignment: 16)

    /// Listens on an address with a certificate and its key (PEM); port 0 takes a free one. With an
    /// authority clients are asked for a certificate of it.
    public init(
        loop: EventLoop, host: String = "127.0.0.1", port: UInt16 = 0, certificatePEM: String,
        keyPEM: String, clientAuthorityPEM: String? = nil,
        options: ServerOptions = ServerOptions(),
        delegate: any ServerConnectionDelegate
    ) throws(ListenError) {
        self.loop = loop
        self.options = options
        self.delegate = delegate
        do {
            context = try TLSContext.server(
                certificatePEM: certificatePEM, keyPEM: keyPEM, alpn: ["h2"],
                clientAuthorityPEM: clientAuthorityPEM)
            otherContext = try TLSContext.server(
                certificatePEM: certificatePEM, keyPEM: keyPEM, alpn: ["http/1.1"])
        } catch { throw ListenError.tls(error) }
        do {
            (fd, self.port) = try ListeningSocket.open(host: host, port: port)
        } catch { throw ListenError.socket(error) }
        do {
            registration = try loop.register(fd, .read, self)
        } catch {
            SocketIO.close(fd)
            throw ListenError.socket(error)
        }
    }

    deinit { readBuffer.deallocate() }

    /// Stops listening and cuts every connection.
    public func close() {
        stopAccepting()
        for connection in connections.values { connection.cut() }
        for fd in stalled { SocketIO.close(fd) }
        stalled.removeAll()
    }

    /// Stops listening; connections that are open stay.
    public func stopAccepting() {
        guard let registration else { return }
        loop.deregister(registration)
        self.registration = nil
        SocketIO.close(fd)
        fd = -1
    }
}

/// Why a listener could not be set up.
public enum ListenError: Error, CustomStringConvertible {
    /// The certificate or its key is unusable.
    case tls(TLSError)
    /// The address cannot be listened on.
    case socket(SystemError)

    /// What failed, in words.
    public var description: String {
        switch self {
        case .tls(let error): "the server's certificate is unusable: \(error)"
        case .socket(let error): "cannot listen: \(error)"
        }
    }
}

extension HTTP2Listener: ReadinessHandler {
    /// Connections wait to be accepted.
    public func ready(_ readiness: Readiness) {
        for _ in 0..<ServerLimits.acceptsPerTurn {
            guard let accepted = ListeningSocket.accept(fd) else { return }
            accept(accepted)
        }
    }

    private func accept(_ socket: Int32) {
        accepted += 1
        switch acceptance(accepted) {
        case .serve: serve(socket, context)
        case .withoutHTTP2: serve(socket, otherContext)
        case .stallTLS: stalled.append(socket)
        case .reset:
            AbruptClose.prepare(socket)
            SocketIO.close(socket)
        case .breakTLS:
            // An HTTP/1.1 answer, as a plaintext port behind a wrong address gives it.
            let text: StaticString = "HTTP/1.1 400 Bad Request\r\n\r\n"
            _ = SocketIO.write(
                socket,
                UnsafeRawBufferPointer(start: text.utf8Start, count: text.utf8CodeUnitCount))
            SocketIO.close(socket)
        }
    }

    private func serve(_ socket: Int32, _ context: TLSContext) {
        do {
            let connection = try ServerConnection(
                number: accepted, fd: socket, tls: TLSSession(server: context, fd: socket),
                loop: loop, options: options, readBuffer: readBuffer, delegate: delegate,
                onClose: { [unowned self] in connections[$0.number] = nil })
            try connection.start()
            connections[connection.number] = connection
        } catch {
            // Out of descriptors or memory: the peer sees a closed connection and comes again.
            SocketIO.close(socket)
        }
    }
}

/// Makes the next close of a socket send RST instead of FIN.
enum AbruptClose {
    static func prepare(_ fd: Int32) {
        var linger = linger(l_onoff: 1, l_linger: 0)
        setsockopt(
            fd, SOL_SOCKET, SO_LINGER, &linger, socklen_t(MemoryLayout.size(ofValue: linger)))
    }
}
