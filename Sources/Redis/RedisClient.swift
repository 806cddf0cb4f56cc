// A connection that comes back: dial, greet (AUTH, SELECT, CLIENT SETNAME, PING), serve, and start
// again when it ends, with every time limit set anew.

public import Base
public import EventLoop

/// What a client tells its owner.
public enum RedisEvent: Equatable, Sendable {
    /// Commands are taken.
    case ready
    /// A usable connection ended; commands that waited on it fail right after this.
    case lost(RedisError)
    /// An attempt to connect came to nothing.
    case attemptFailed(RedisError)
}

/// A Redis client confined to one loop.
public final class RedisClient {
    private let configuration: RedisConfiguration
    private let loop: EventLoop
    @exclusivity(unchecked) private var state = ReconnectState()
    @exclusivity(unchecked) private var connection: RedisConnection?
    private var dial: DialAttempt?
    private lazy var waitTimer = LoopTimer { [unowned self] in perform(state.waited()) }

    /// Told of every change, on the loop. Set before `start`.
    public var observer: ((RedisEvent) -> Void)?

    /// Called with the time every answered command took, for a histogram.
    public var latencyObserver: ((TimeSpan) -> Void)?

    /// A client that does nothing until it is started.
    public init(_ configuration: RedisConfiguration, on loop: EventLoop) {
        self.configuration = configuration
        self.loop = loop
    }

    /// Begins to connect, and to reconnect whenever that is needed.
    public func start() { perform(state.started()) }

    /// Ends the connection and all attempts; commands that wait fail.
    public func close() {
        state.closed()
        observer = nil
        dial?.cancel()
        dial = nil
        loop.cancel(waitTimer)
        connection?.end(.closed)
        connection = nil
    }

    /// Whether commands are taken.
    public var isReady: Bool { state.isReady }

    /// Commands that wait for their reply.
    public var pendingCount: Int { connection?.pendingCount ?? 0 }

    /// Sends a command, appended by `write` in full; it leaves at the end of the loop's turn.
    ///
    /// An error means that the command was not taken: the handler then hears nothing of it.
    /// Otherwise the handler is called exactly once with `tag`, never within this call.
    public func send(
        to handler: any RedisReplyHandler, tag: UInt64, _ write: (ByteWriter) -> Void
    ) -> RedisError? {
        guard state.isReady, let connection else { return .notConnected }
        return connection.send(to: handler, tag: tag, write)
    }

    /// Sends a command given by its arguments.
    public func send(
        _ arguments: [String], to handler: any RedisReplyHandler, tag: UInt64
    ) -> RedisError? {
        send(to: handler, tag: tag) { writer in
            writer.append(commandOf: arguments.count)
            for argument in arguments { writer.append(argument: argument) }
        }
    }

    // MARK: - Connecting

    private func perform(_ action: ReconnectState.Action) {
        switch action {
        case .none: break
        case .wait(let span): loop.schedule(waitTimer, at: loop.now + span)
        case .dial:
            dial = Dialer.dial(
                host: configuration.host, port: configuration.port, on: loop,
                deadline: loop.now + configuration.connectTimeout
            ) { [unowned self] in dialed($0) }
        }
    }

    private func dialed(_ result: Result<Int32, DialError>) {
        dial = nil
        switch result {
        case .failure(let error): attemptFailed(.dialFailed(error))
        case .success(let fd):
            do throws(SystemError) {
                let connection = try RedisConnection(
                    fd: fd, loop: loop, commandTimeout: configuration.commandTimeout)
                connection.ended = { [unowned self] in connectionEnded($0) }
                self.connection = connection
                state.connected()
                greet(connection)
            } catch {
                SocketIO.close(fd)
                attemptFailed(.failed(error))
            }
        }
    }

    private func greet(_ connection: RedisConnection) {
        let greeting = Greeting { [unowned self, unowned connection] error in
            greeted(connection, error)
        }
        for command in greeting.commands(for: configuration) {
            _ = connection.send(to: greeting, tag: command.step.rawValue) { writer in
                writer.append(commandOf: command.arguments.count)
                for argument in command.arguments { writer.append(argument: argument) }
            }
        }
    }

    private func greeted(_ connection: RedisConnection, _ error: RedisError?) {
        guard connection === self.connection else { return }
        if let error {
            connection.end(error)
            return
        }
        connection.answered = latencyObserver
        state.greeted(at: loop.now)
        observer?(.ready)
    }

    private func connectionEnded(_ error: RedisError) {
        connection = nil
        let wasReady = state.isReady
        perform(state.failed(at: loop.now, &loop.random))
        observer?(wasReady ? .lost(error) : .attemptFailed(error))
    }

    private func attemptFailed(_ error: RedisError) {
        perform(state.failed(at: loop.now, &loop.random))
        observer?(.attemptFailed(error))
    }
}

/// The commands every connection starts with, all in one write.
private final class Greeting: RedisReplyHandler {
    enum Step: UInt64 { case auth, select, name, ping }

    private var done: ((RedisError?) -> Void)?

    init(_ done: @escaping (RedisError?) -> Void) { self.done = done }

    func commands(
        for configuration: RedisConfiguration
    ) -> [(step: Step, arguments: [String])] {
        var commands: [(Step, [String])] = []
        if let password = configuration.password {
            let user = configuration.user.map { [$0] } ?? []
            commands.append((.auth, ["AUTH"] + user + [password]))
        }
        if configuration.database != 0 {
            commands.append((.select, ["SELECT", String(configuration.database)]))
        }
        if let name = configuration.clientName {
            commands.append((.name, ["CLIENT", "SETNAME", name]))
        }
        commands.append((.ping, ["PING"]))
        return commands
    }

    func replied(_ reply: RedisReply, tag: UInt64) {
        if tag == Step.ping.rawValue { finish(nil) }
    }

    func failed(_ error: RedisError, tag: UInt64) {
        if case .refused(let refusal) = error {
            // An ACL user need not be allowed to name itself or to ping.
            if tag == Step.name.rawValue { return }
            if tag == Step.ping.rawValue && refusal.code == "NOPERM" { return finish(nil) }
        }
        finish(error)
    }

    private func finish(_ error: RedisError?) {
        let done = done
        self.done = nil
        done?(error)
    }
}
