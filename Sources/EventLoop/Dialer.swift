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
    /// The proxy opened no tunnel to the host.
    case proxyFailed(proxy: String, host: String, String)

    /// What failed, with the host's name.
    public var description: String {
        switch self {
        case .lookUpFailed(let host, let text): "look-up of \(host) failed: \(text)"
        case .connectFailed(let host, let error): "\(host): \(error)"
        case .timedOut(let host): "\(host): no answer to connect before the deadline"
        case .forbidden(let host):
            "\(host) leads to an address that is not one of the public Internet"
        case .proxyFailed(let proxy, let host, let text):
            "\(host), through the proxy \(proxy): \(text)"
        }
    }
}

/// Opens TCP connections without blocking.
public enum Dialer {
    /// Looks the host up afresh, tries every address and hands over a connected non-blocking
    /// descriptor with Nagle's delay off and keep-alive on. Addresses out of `reach` are not tried.
    /// Through a proxy the descriptor is the end of a tunnel; who may not reach everything has the
    /// host looked up here all the same, and the proxy is asked for the address that was found
    /// good.
    /// `done` is called once, on the loop's thread, never within this call. The attempt keeps
    /// itself alive.
    @discardableResult
    public static func dial(
        host: String, port: UInt16, reach: AddressReach = .any, egress: Egress = .direct,
        on loop: EventLoop, deadline: MonotonicTime,
        _ done: @escaping (Result<Int32, DialError>) -> Void
    ) -> DialAttempt {
        let attempt = DialAttempt(
            host: host, port: port, reach: reach, egress: egress, loop: loop, done: done)
        attempt.start(deadline: deadline)
        return attempt
    }
}

/// A dial in progress; loop-confined.
public final class DialAttempt {
    private let host: String
    private let port: UInt16
    private let egress: Egress
    private let proxy: Egress.Proxy?
    private let reach: AddressReach
    private let loop: EventLoop
    private var done: ((Result<Int32, DialError>) -> Void)?
    private var addresses: ArraySlice<SocketAddress> = []
    private var sockets: [ConnectingSocket] = []
    /// What the proxy is asked for, one after the other.
    private var destinations: ArraySlice<String> = []
    private var tunnel: TunnelHandshake?
    private var lastFault: DialError?
    private var lastError: SystemError?
    private var hasForbidden = false
    private lazy var deadlineTimer = LoopTimer { [unowned self] in
        finish(.failure(lastFailure ?? .timedOut(host: proxy.map { "proxy \($0.name)" } ?? host)))
    }
    private lazy var nextAddressTimer = LoopTimer { [unowned self] in connectNext() }

    fileprivate init(
        host: String, port: UInt16, reach: AddressReach, egress: Egress, loop: EventLoop,
        done: @escaping (Result<Int32, DialError>) -> Void
    ) {
        self.host = host
        self.port = port
        self.egress = egress
        proxy = egress.proxy(for: host)
        self.reach = reach
        self.loop = loop
        self.done = done
    }

    /// Gives the attempt up; `done` is not called.
    public func cancel() {
        done = nil
        cleanUp()
    }

    fileprivate func start(deadline: MonotonicTime) {
        loop.schedule(deadlineTimer, at: deadline)
        guard let proxy else {
            return lookUp(host, port) { [self] found in connect(to: found) }
        }
        if reach == .any {
            destinations = [Egress.Proxy.authority(host, port)]
            return lookUp(proxy)
        }
        lookUp(host, port) { [self] found in
            let permitted = found.filter(reach.permits)
            guard !permitted.isEmpty else { return finish(.failure(.forbidden(host: host))) }
            destinations = permitted.map { Egress.Proxy.authority($0.text, port) }[...]
            lookUp(proxy)
        }
    }

    private func lookUp(_ proxy: Egress.Proxy) {
        lookUp(proxy.host, proxy.port) { [self] found in connect(to: found) }
    }

    /// Looks a name up on a resolver's thread, and orders what it has.
    private func lookUp(
        _ name: String, _ port: UInt16, _ found: @escaping ([SocketAddress]) -> Void
    ) {
        let confined = LoopConfined { [self] (result: Result<[SocketAddress], DialError>) in
            guard done != nil else { return }
            switch result {
            case .success(let addresses):
                let chosen = egress.addresses.order(addresses)
                guard !chosen.isEmpty else {
                    let family = egress.addresses == .onlyIPv4 ? "IPv4" : "IPv6"
                    return finish(
                        .failure(.lookUpFailed(host: name, "it has no address of \(family)")))
                }
                found(chosen)
            case .failure(let error): finish(.failure(error))
            }
        }
        let handle = loop.handle
        // Names that clients chose may take the resolver's whole patience.
        let isForeign = reach != .any && name == host
        let resolver = isForeign ? Resolver.foreign : Resolver.shared
        resolver.lookUp(host: name, port: port, in: loop.names) { result in
            handle.submit { confined.value(result) }
        }
    }

    private func connect(to found: [SocketAddress]) {
        addresses = found[...]
        connectNext()
    }

    private var lastFailure: DialError? {
        lastFault ?? lastError.map { .connectFailed(host: proxy?.name ?? host, $0) }
            ?? (hasForbidden ? .forbidden(host: host) : nil)
    }

    /// Asks the proxy for the next of the host's addresses, or for the host.
    private func openTunnel(over socket: Int32, _ proxy: Egress.Proxy) {
        guard let destination = destinations.popFirst() else { return SocketIO.close(socket) }
        let handshake = TunnelHandshake(socket, to: destination, proxy, on: loop) {
            [self] result in
            tunnel = nil
            switch result {
            case .success(let fd): finish(.success(fd))
            case .failure(let fault):
                lastFault = .proxyFailed(proxy: proxy.name, host: host, fault.text)
                if destinations.isEmpty {
                    finish(.failure(lastFailure ?? .timedOut(host: host)))
                } else {
                    lookUp(proxy)
                }
            }
        }
        tunnel = handshake
        handshake.start()
    }

    private func connectNext() {
        guard done != nil else { return }
        guard let address = addresses.popFirst() else {
            if sockets.isEmpty { finish(.failure(lastFailure ?? .timedOut(host: host))) }
            return
        }
        guard proxy != nil || reach.permits(address) else {
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
            let fd = socket.takeConnected()
            guard let proxy else { return finish(.success(fd)) }
            loop.cancel(nextAddressTimer)
            for socket in sockets { socket.discard() }
            sockets.removeAll()
            openTunnel(over: fd, proxy)
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
        tunnel?.cancel()
        tunnel = nil
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
