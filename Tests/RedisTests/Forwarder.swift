// An address in front of servers that can be pointed at another one, as a load balancer or a name
// does at a fail-over: connections stay where they are, new ones go to the new place.

import Base
import EventLoop

/// Forwards connections from a loopback port of its own, on the test's loop.
final class Forwarder: ReadinessHandler {
    let port: UInt16
    /// Where new connections go; nil closes them.
    var target: UInt16?
    private(set) var connectionCount = 0
    private let loop: EventLoop
    private let listener: Int32
    private var registration: Registration?
    private var tunnels: [Tunnel] = []

    init(to target: UInt16?, on loop: EventLoop) throws {
        self.target = target
        self.loop = loop
        (listener, port) = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        registration = try loop.register(listener, .read, self)
    }

    deinit {
        cut()
        if let registration { loop.deregister(registration) }
        SocketIO.close(listener)
    }

    /// Closes the connections that there are.
    func cut() {
        for tunnel in tunnels { tunnel.close() }
        tunnels = []
    }

    func ready(_ readiness: Readiness) {
        while let fd = ListeningSocket.accept(listener) {
            connectionCount += 1
            guard let target else {
                SocketIO.close(fd)
                continue
            }
            tunnels.append(Tunnel(fd, to: target, loop))
        }
    }
}

/// One connection and its other half.
private final class Tunnel {
    private let loop: EventLoop
    private var near: End?
    private var far: End?
    private var dial: DialAttempt?

    init(_ fd: Int32, to port: UInt16, _ loop: EventLoop) {
        self.loop = loop
        dial = Dialer.dial(
            host: "127.0.0.1", port: port, on: loop, deadline: loop.now + .seconds(5)
        ) { [unowned self] result in
            dial = nil
            guard case .success(let other) = result else { return SocketIO.close(fd) }
            let near = End(fd, loop)
            let far = End(other, loop)
            (near.other, far.other) = (far, near)
            (self.near, self.far) = (near, far)
        }
    }

    deinit { close() }

    func close() {
        dial?.cancel()
        near?.close()
    }
}

private final class End: ReadinessHandler {
    weak var other: End?
    private let fd: Int32
    private let loop: EventLoop
    private var registration: Registration?

    init(_ fd: Int32, _ loop: EventLoop) {
        self.fd = fd
        self.loop = loop
        registration = try? loop.register(fd, .read, self)
    }

    /// Closes both halves.
    func close() {
        guard let registration else { return }
        self.registration = nil
        loop.deregister(registration)
        SocketIO.close(fd)
        other?.close()
    }

    func ready(_ readiness: Readiness) {
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        guard
            case .count(let count) = buffer.withUnsafeMutableBytes({ SocketIO.read(fd, into: $0) })
        else { return close() }
        // What these tests send fits into a socket's buffer.
        let written = buffer[..<count].withUnsafeBytes { bytes in
            other.map { SocketIO.write($0.fd, bytes) }
        }
        if written != .count(count) { close() }
    }
}
