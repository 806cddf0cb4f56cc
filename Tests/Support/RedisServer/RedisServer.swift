// A real redis-server as a child process on a free loopback port, for tests and benchmarks. It
// keeps nothing on disk unless it is told to, and neither it nor its folder outlives the process
// that started it, however that ends.

public import EventLoop
internal import Glibc
internal import Synchronization

/// A running redis-server.
public final class RedisServer {
    /// The port it listens on, the same after a restart.
    public let port: UInt16
    /// The port of its cluster bus; 0 when it is no node of a cluster.
    public let busPort: UInt16
    /// The folder its files are in, if it writes any. Removed with this object.
    public let folder: String
    private let arguments: [String]
    private let usesTLS: Bool
    private var process: pid_t = 0
    private var watchdog: pid_t = 0
    /// Keeps one test's child from inheriting a pipe of another's before it is marked.
    private static let spawning = Mutex(())
    /// The write end of the pipe whose end tells the watchdog that this process is gone.
    private var lifeline: Int32 = -1

    /// Starts a server and returns when it accepts connections. `arguments` are further settings
    /// as on its command line, e.g. `["--requirepass", "secret"]`.
    public init(
        arguments: [String] = [], busPort: UInt16 = 0, usesTLS: Bool = false
    ) throws(SystemError) {
        self.usesTLS = usesTLS
        port = try Self.freePort()
        self.busPort = busPort
        folder = try Self.makeFolder()
        self.arguments = ["--dir", folder] + arguments
        try start()
    }

    deinit {
        kill()
        _ = try? Self.output(of: ["rm", "-rf", folder])
    }

    /// A port that nobody listens on.
    public static func freePort() throws(SystemError) -> UInt16 {
        let listener = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        SocketIO.close(listener.fd)
        return listener.port
    }

    /// Starts a killed server again, with nothing but what it wrote to its folder. Returns once
    /// its log has the given words.
    public func start(
        untilItSays sign: String = "Ready to accept connections"
    ) throws(SystemError) {
        let output = try Self.pipe()
        let settings = [
            "redis-server", "--port", usesTLS ? "0" : String(port), "--tls-port",
            usesTLS ? String(port) : "0", "--bind", "127.0.0.1", "--save", "",
            "--appendonly", "no", "--protected-mode", "no", "--logfile", "",
        ]
        process = try Self.spawn(settings + arguments, output: output.write)
        close(output.write)
        let said = Self.read(output.read) { $0.contains(sign) }
        close(output.read)
        guard said.contains(sign) else {
            kill()
            throw SystemError("redis-server", errno: ECHILD)
        }
        let life = try Self.pipe()
        lifeline = life.write
        watchdog = try Self.spawn(
            [
                "sh", "-c",
                "read line; left=$?; kill -9 \(process) 2>/dev/null; [ $left = 0 ] || rm -rf \(folder)",
            ],
            input: life.read)
        close(life.read)
    }

    /// Ends the server as a power cut would, and waits until it is gone.
    public func kill() {
        guard process > 0 else { return }
        Glibc.kill(process, SIGKILL)
        waitpid(process, nil, 0)
        process = 0
        if lifeline >= 0 {
            // A line means that this process lives on, and the folder with it.
            write(lifeline, "\n", 1)
            close(lifeline)
        }
        lifeline = -1
        if watchdog > 0 { waitpid(watchdog, nil, 0) }
        watchdog = 0
    }

    /// Runs a command with redis-cli and returns what that prints, without the line feed at its
    /// end; an error reply is its text.
    @discardableResult
    public func command(_ words: String...) -> String { command(words) }

    /// Runs a command given as a list.
    @discardableResult
    public func command(_ words: [String]) -> String {
        var text = (try? Self.output(of: ["redis-cli", "-p", "\(port)"] + words)) ?? ""
        while text.last == "\n" { text.removeLast() }
        return text
    }

    /// Stops the server in its tracks: connections stay open and nothing answers.
    public func freeze() { Glibc.kill(process, SIGSTOP) }

    /// Lets a frozen server go on.
    public func thaw() { Glibc.kill(process, SIGCONT) }

    private static func makeFolder() throws(SystemError) -> String {
        var template = Array("/tmp/bugle-redis-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw SystemError("mkdtemp", errno: errno) }
        return String(decoding: template.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    private static func output(of command: [String]) throws(SystemError) -> String {
        let output = try pipe()
        let process = try spawn(command, output: output.write)
        close(output.write)
        let text = read(output.read) { _ in false }
        close(output.read)
        waitpid(process, nil, 0)
        return text
    }

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

    /// Reads until that is enough, or to the end.
    private static func read(_ descriptor: Int32, until isEnough: (String) -> Bool) -> String {
        var text = ""
        var buffer = [UInt8](repeating: 0, count: 4096)
        while !isEnough(text) {
            let count = Glibc.read(descriptor, &buffer, buffer.count)
            guard count > 0 else { break }
            text += String(decoding: buffer[..<count], as: UTF8.self)
        }
        return text
    }
}
