// A broker in a process of its own on a free loopback port, with its data in a temporary folder:
// for what the broker in process cannot show. Everything goes when the object does.

import Base
import EventLoop
import Glibc
import Kafka

/// `noida-db`, found on PATH, serving only the Kafka protocol.
final class TestBroker {
    let port: UInt16
    private let folder: String
    private var process: pid_t = 0
    /// A pipe nobody writes to; its end tells the broker's shell that this process is gone.
    private var lifeline: [Int32] = [-1, -1]

    var configuration: KafkaConfiguration {
        KafkaConfiguration(bootstrapServers: "127.0.0.1:\(port)")
    }

    init() throws {
        let listener = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        close(listener.fd)
        port = listener.port
        var template = Array("/tmp/bugle-broker-XXXXXX".utf8CString)
        guard mkdtemp(&template) != nil else { throw KafkaTestError.noBroker }
        folder = String(
            decoding: template.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        guard pipe(&lifeline) == 0 else { throw KafkaTestError.noBroker }
        for fd in lifeline { _ = fcntl(fd, F_SETFD, FD_CLOEXEC) }
        try start()
    }

    deinit {
        end(with: SIGKILL)
        for fd in lifeline { close(fd) }
        _ = Self.run(["rm", "-rf", folder])
    }

    /// Starts the process and waits until it answers.
    func start() throws {
        // The shell ends the whole process group when its input does: with this process, however
        // that ends.
        let command =
            "noida-db start --only kafka --kafka-port \(port) --data-dir \(folder)/data & "
            + "read line; kill -9 0"
        process = try Self.spawn(
            ["sh", "-c", command], input: lifeline[0], output: folder + "/log")
        let deadline = SystemTime.shared.monotonic + .seconds(60)
        let admin = try Admin(configuration)
        while SystemTime.shared.monotonic < deadline {
            if let found = try? admin.describeCluster(timeout: .seconds(1)), !found.brokers.isEmpty
            {
                return
            }
        }
        throw KafkaTestError.noBroker
    }

    /// Ends the process in order, so that it saves what it holds: killed outright it forgets the
    /// last seconds, which no test here is about.
    func stop() { end(with: SIGTERM) }

    /// The process and its children share a process group of their own.
    private func end(with signal: Int32) {
        guard process > 0 else { return }
        Glibc.kill(-process, signal)
        var status: Int32 = 0
        // The server is a child of what was started; give it time to save.
        let deadline = SystemTime.shared.monotonic + .seconds(10)
        while Glibc.kill(-process, 0) == 0, SystemTime.shared.monotonic < deadline {
            waitpid(process, &status, WNOHANG)
            poll(nil, 0, 5)
        }
        Glibc.kill(-process, SIGKILL)
        waitpid(process, &status, 0)
        process = 0
    }

    private static func spawn(
        _ arguments: [String], input: Int32 = -1, output: String
    ) throws -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        if input >= 0 { posix_spawn_file_actions_adddup2(&actions, input, 0) }
        posix_spawn_file_actions_addopen(
            &actions, 1, output, O_WRONLY | O_CREAT | O_APPEND, 0o600)
        posix_spawn_file_actions_adddup2(&actions, 1, 2)
        var attributes = posix_spawnattr_t()
        posix_spawnattr_init(&attributes)
        defer { posix_spawnattr_destroy(&attributes) }
        // The threads that run tests block signals, and the mask would be inherited.
        var open = sigset_t()
        sigemptyset(&open)
        posix_spawnattr_setsigmask(&attributes, &open)
        posix_spawnattr_setflags(
            &attributes, Int16(POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK))
        posix_spawnattr_setpgroup(&attributes, 0)
        var argv: [UnsafeMutablePointer<CChar>?] = arguments.map { strdup($0) }
        argv.append(nil)
        defer { for argument in argv { free(argument) } }
        var process: pid_t = 0
        let failure = posix_spawnp(&process, arguments[0], &actions, &attributes, argv, environ)
        guard failure == 0 else { throw KafkaTestError.noBroker }
        return process
    }

    private static func run(_ arguments: [String]) -> Int32 {
        guard let process = try? spawn(arguments, output: "/dev/null") else { return -1 }
        var status: Int32 = 0
        waitpid(process, &status, 0)
        return status
    }
}
