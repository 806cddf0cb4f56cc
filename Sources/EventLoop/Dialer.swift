// Dialling: a fresh look-up for every connection, then every address it returned, the next one
// started when the one before failed or has not answered within a quarter of a second
// (RFC 8305, section 5).

public import Base
internal import CLinux
internal import Glibc

/// Why no connection came about.
public enum DialError: Error, Equatable, CustomStringConvertible {
    /// The name has no address.
    case lookUpFailed(host: String, String)
    /// Every address failed; the last one's error.
    case connectFailed(host: String, SystemError)
    /// Nothing answered before the deadline.
    case timedOut(host: String)
    /// The name has addresses, none of which may be connected to.
    case forbidden(host: String)

    /// What failed, with the host's name.
    public var description: String {
        switch self {
        case .lookUpFailed(let host, let text): "look-up of \(host) failed: \(text)"
        case .connectFailed(let host, let error): "\(host): \(error)"
        case .timedOut(let host): "\(host): no answer to connect before the deadline"
        case .forbidden(let host):
            "\(host) leads to an address that is not one of the public Internet"
        }
    }
}

/// Opens TCP connections without blocking.
public enum Dialer {
    /// Looks the host up afresh, tries every address and hands over a connected non-blocking
    /// descriptor with Nagle's delay off and keep-alive on. Addresses out of `reach` are not tried.
    /// `done` is called once, on the loop's thread, never within this call. The attempt keeps
    /// itself alive.
    @discardableResult
    public static func dial(
        host: String, port: UInt16, reach: AddressReach = .any, on loop: EventLoop,
        deadline: MonotonicTime, _ done: @escaping (Result<Int32, DialError>) -> Void
    ) -> DialAttempt {
        let attempt = DialAttempt(host: host, reach: reach, loop: loop, done: done)
        attempt.start(port: port, deadline: deadline)
        return attempt
    }
}

/// A dial in progress; loop-confined.
public final class DialAttempt {
    private let host: String
    private let reach: AddressReach
    private let loop: EventLoop
    private var done: ((Result<Int32, DialError>) -> Void)?
    private var addresses: ArraySlice<SocketAddress> = []
    private var sockets: [ConnectingSocket] = []
    private var lastError: SystemError?
    private var hasForbidden = false
    private lazy var deadlineTimer = LoopTimer { [unowned self] in
        finish(.failure(lastFailure ?? .timedOut(host: host)))
    }
    private lazy var nextAddressTimer = LoopTimer { [unowned self] in connectNext() }

    fileprivate init(
        host: String, reach: AddressReach, loop: EventLoop,
        done: @escaping (Result<Int32, DialError>) -> Void
    ) {
        self.host = host
        self.reach = reach
        self.loop = loop
        self.done = done
    }

    /// Gives the attempt up; `done` is not called.
    public func cancel() {
        done = nil
        cleanUp()
    }

    fileprivate func start(port: UInt16, deadline: MonotonicTime) {
        loop.schedule(deadlineTimer, at: deadline)
        let confined = LoopConfined(self)
        let handle = loop.handle
        // Names that clients chose may take the resolver's whole patience.
        let resolver = reach == .any ? Resolver.shared : Resolver.foreign
        resolver.lookUp(host: host, port: port) { result in
            handle.submit { confined.value.lookedUp(result) }
        }
    }

    private func lookedUp(_ result: Result<[SocketAddress], DialError>) {
        guard done != nil else { return }
        switch result {
        case .success(let found):
            addresses = found[...]
            connectNext()
        case .failure(let error): finish(.failure(error))
        }
    }

    private var lastFailure: DialError? {
        lastError.map { .connectFailed(host: host, $0) }
            ?? (hasForbidden ? .forbidden(host: host) : nil)
    }

    private func connectNext() {
        guard done != nil else { return }
        guard let address = addresses.popFirst() else {
            if sockets.isEmpty { finish(.failure(lastFailure ?? .timedOut(host: host))) }
            return
        }
        guard reach.permits(address) else {
            hasForbidden = true
            return connectNext()
        }
        do throws(SystemError) {
            let socket = try ConnectingSocket(address, loop: loop)
            socket.attempt = self
            sockets.append(socket)
            if !addresses.isEmpty {
                loop.schedule(nextAddressTimer, at: loop.now + Limits.nextAddressDelay)
            }
        } catch {
            lastError = error
            connectNext()
        }
    }

    fileprivate func settled(_ socket: ConnectingSocket) {
        sockets.removeAll { $0 === socket }
        let error = socket.pendingError()
        if error == 0 {
            finish(.success(socket.takeConnected()))
        } else {
            socket.discard()
            lastError = SystemError("connect", errno: error)
            connectNext()
        }
    }

    private func finish(_ result: Result<Int32, DialError>) {
        guard let done else { return }
        self.done = nil
        cleanUp()
        done(result)
    }

    private func cleanUp() {
        loop.cancel(deadlineTimer)
        loop.cancel(nextAddressTimer)
        for socket in sockets { socket.discard() }
        sockets.removeAll()
    }

    private enum Limits {
        /// RFC 8305, section 8: the recommended delay between connection attempts.
        static let nextAddressDelay = TimeSpan.milliseconds(250)
    }
}

/// A socket whose connect has not finished.
private final class ConnectingSocket: ReadinessHandler {
    var attempt: DialAttempt?
    private let fd: Int32
    private let loop: EventLoop
    private var registration: Registration?

    init(_ address: SocketAddress, loop: EventLoop) throws(SystemError) {
        self.loop = loop
        fd = try checked("socket") {
            socket(
                address.family,
                Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue | SOCK_CLOEXEC.rawValue), 0)
        }
        do throws(SystemError) {
            Self.setOptions(of: fd)
            let result = address.withPointer { connect(fd, $0, $1) }
            if result != 0 && errno != EINPROGRESS { throw SystemError("connect", errno: errno) }
            registration = try loop.register(fd, .write, self)
        } catch {
            SocketIO.close(fd)
            throw error
        }
    }

    func ready(_ readiness: Readiness) {
        let owner = attempt
        attempt = nil
        owner?.settled(self)
    }

    func pendingError() -> Int32 {
        var code: Int32 = 0
        var length = socklen_t(4)
        getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &length)
        return code
    }

    func takeConnected() -> Int32 {
        if let registration { loop.deregister(registration) }
        return fd
    }

    func discard() {
        attempt = nil
        if let registration { loop.deregister(registration) }
        SocketIO.close(fd)
    }

    /// Keep-alive is the second net under the protocols' own liveness checks.
    private static func setOptions(of fd: Int32) {
        var on: Int32 = 1
        let tcp = Int32(IPPROTO_TCP)
        setsockopt(fd, tcp, TCP_NODELAY, &on, 4)
        setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, 4)
        for (option, value) in [(TCP_KEEPIDLE, 60), (TCP_KEEPINTVL, 10), (TCP_KEEPCNT, 3)] {
            var value = Int32(value)
            setsockopt(fd, tcp, option, &value, 4)
        }
    }
}
