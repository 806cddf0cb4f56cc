// A server that speaks the protocol and answers each command as a test says, on the test's own
// loop.

import Base
import EventLoop

@testable import Redis

final class ScriptedServer: ReadinessHandler {
    let host: String
    let port: UInt16
    var endpoint: RedisEndpoint { RedisEndpoint(host: host, port: port) }
    private let loop: EventLoop
    private var listener: Int32
    private var registration: Registration?
    private var peers: [Peer] = []
    /// Answers a command, in raw bytes; after an empty answer the connection stays silent.
    var answer: ([String]) -> String = { _ in "+OK\r\n" }
    /// What was received, heartbeats and greetings excepted.
    private(set) var commands: [[String]] = []
    private(set) var connectionCount = 0

    init(on loop: EventLoop, host: String = "127.0.0.1", port: UInt16 = 0) throws {
        self.loop = loop
        self.host = host
        (listener, self.port) = try ListeningSocket.open(host: host, port: port)
        registration = try loop.register(listener, .read, self)
    }

    deinit { stop() }

    /// Closes everything, and listens no more.
    func stop() {
        cut()
        guard listener >= 0 else { return }
        if let registration { loop.deregister(registration) }
        SocketIO.close(listener)
        listener = -1
    }

    /// Closes the connections that there are.
    func cut() {
        for peer in peers { peer.close() }
        peers = []
    }

    func ready(_ readiness: Readiness) {
        while let fd = ListeningSocket.accept(listener) {
            connectionCount += 1
            peers.append(Peer(fd, loop, self))
        }
    }

    fileprivate func reply(to command: [String], isSilent: Bool) -> String {
        if isSilent { return "" }
        if command == ["PING"] { return "+PONG\r\n" }
        if command != ["CLUSTER", "SLOTS"] { commands.append(command) }
        return answer(command)
    }
}

private final class Peer: ReadinessHandler {
    private let fd: Int32
    private let loop: EventLoop
    private unowned let server: ScriptedServer
    private var registration: Registration?
    private let reader = ReplyReader()
    private var isClosed = false
    private var isSilent = false

    init(_ fd: Int32, _ loop: EventLoop, _ server: ScriptedServer) {
        self.fd = fd
        self.loop = loop
        self.server = server
        registration = try? loop.register(fd, .read, self)
    }

    deinit { close() }

    func close() {
        guard !isClosed else { return }
        isClosed = true
        if let registration { loop.deregister(registration) }
        SocketIO.close(fd)
    }

    /// A command is an array of texts, which is what a reply may be too.
    func ready(_ readiness: Readiness) {
        var buffer = [UInt8](repeating: 0, count: 64 << 10)
        guard
            case .count(let count) = buffer.withUnsafeMutableBytes({ SocketIO.read(fd, into: $0) })
        else { return close() }
        _ = buffer[..<count].withUnsafeBytes { reader.feed($0) }
        while !isClosed, case .reply = reader.next() {
            let command = RedisReply(reader.storage, at: 0).elements.compactMap(\.text)
            reader.discard()
            let reply = Array(server.reply(to: command, isSilent: isSilent).utf8)
            isSilent = reply.isEmpty
            if !isClosed { _ = reply.withUnsafeBytes { SocketIO.write(fd, $0) } }
        }
    }
}
