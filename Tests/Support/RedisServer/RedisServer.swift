// A real redis-server as a child process on a free loopback port, for tests and benchmarks. It
// keeps nothing on disk, and it does not outlive the process that started it, however that ends.

public import EventLoop
internal import Glibc
internal import Synchronization

/// A running redis-server.
public final class RedisServer {
    /// The port it listens on, the same after a restart.
    public let port: UInt16
    private let arguments: [String]
    private var process: pid_t = 0
    private var watchdog: pid_t = 0
    /// Keeps one test's child from inheriting a pipe of another's before it is marked.
    private static let spawning = Mutex(())
    /// The write end of the pipe whose end tells the watchdog that this process is gone.
    private var lifeline: Int32 = -1

    /// Starts a server and returns when it accepts connections. `arguments` are further settings
    /// as on its command line, e.g. `["--requirepass", "secret"]`.
    public init(arguments: [String] = []) throws(SystemError) {
        let listener = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        SocketIO.close(listener.fd)
        port = listener.port
        self.arguments = arguments
        try start()
    }

    deinit { kill() }

    /// Starts a killed server again, empty.
    public func start() throws(SystemError) {
        let output = try Self.pipe()
        let settings = [
            "redis-server", "--port", String(port), "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "no", "--protected-mode", "no", "--logfile", "",
        ]
        process = try Self.spawn(settings + arguments, output: output.write)
        close(output.write)
        let isReady = Self.read(output.read, until: "Ready to accept connections")
        close(output.read)
        guard isReady else {
            kill()
            throw SystemError("redis-server", errno: ECHILD)
        }
        let life = try Self.pipe()
        lifeline = life.write
        watchdog = try Self.spawn(
            ["sh", "-c", "read line; kill -9 \(process) 2>/dev/null"], input: life.read)
        close(life.read)
    }

    /// Ends the server as a power cut would, and waits until it is gone.
    public func kill() {
        guard process > 0 else { return }
        Glibc.kill(process, SIGKILL)
        waitpid(process, nil, 0)
        process = 0
        if lifeline >= 0 { close(lifeline) }
        lifeline = -1
        if watchdog > 0 { waitpid(watchdog, nil, 0) }
        watchdog = 0
    }

    /// Stops the server in its tracks: connections stay open and nothing answers.
    public func freeze() { Glibc.kill(process, SIGSTOP) }

    /// Lets a frozen server go on.
    public func thaw() { Glibc.kill(process, SIGCONT) }

    private static func pipe() throws(SystemError) -> (read: Int32, write: Int32) {
        var ends: [Int32] = [-1, -1]
        let code = spawning.withLock { _ -> Int32 in
            guard Glibc.pipe(&ends) == 0 else { return errno }
            for end in ends { _ = fcntl(end, F_SETFD, FD_CLOEXEC) }
            return 0
        }
        guard code == 0 else { throw SystemError("pipe", errno: code) }
        return (ends[0], ends[1])
    }

    private static func spawn(
        _ command: [String], input: Int32? = nil, output: Int32? = nil
    ) throws(SystemError) -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        if let input { posix_spawn_file_actions_adddup2(&actions, input, 0) }
        if let output { posix_spawn_file_actions_adddup2(&actions, output, 1) }
        var words: [UnsafeMutablePointer<CChar>?] = command.map { strdup($0) }
        words.append(nil)
        defer { for word in words { free(word) } }
        var process: pid_t = 0
        let code = spawning.withLock { _ in
            posix_spawnp(&process, command[0], &actions, nil, words, environ)
        }
        guard code == 0 else { throw SystemError("posix_spawnp", errno: code) }
        return process
    }

    private static func read(_ descriptor: Int32, until text: String) -> Bool {
        var seen = ""
        var buffer = [UInt8](repeating: 0, count: 4096)
        while !seen.contains(text) {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            guard count > 0 else { return false }
            seen += String(decoding: buffer[..<count], as: UTF8.self)
        }
        return true
    }
}
