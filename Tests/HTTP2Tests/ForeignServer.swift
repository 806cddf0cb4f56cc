import Base
import Crypto
import EventLoop
import Glibc
import HTTP2

/// A server that is not ours, as a child process, with a pool of ours in front of it. Real time.
final class ForeignServer: HTTP2PoolDelegate {
    let loop: EventLoop
    let pool: HTTP2Pool
    private(set) var outcomes: [UInt64: Stage.Outcome] = [:]
    private(set) var alarms: [PoolAlarm] = []
    private var tags: UInt64 = 0
    private let child: pid_t
    private let files: [String]

    /// nghttp2's own server, with more options; without a folder of documents it answers 404.
    static func nghttpd(_ options: [String], _ policy: PoolPolicy) throws -> ForeignServer {
        try ForeignServer(policy) { port, key, certificate in
            ["nghttpd", "-a", "127.0.0.1"] + options
                + ["\(port)", key, certificate]
        }
    }

    /// Node's HTTP/2 server with a script that finds port, key and certificate in `process.argv`.
    static func node(_ script: String, _ policy: PoolPolicy) throws -> ForeignServer {
        try ForeignServer(policy) { port, key, certificate in
            ["node", "-e", script, "--", "\(port)", key, certificate]
        }
    }

    private init(
        _ policy: PoolPolicy, command: (UInt16, String, String) -> [String]
    ) throws {
        signal(SIGPIPE, SIG_IGN)
        let authority = try CertificateAuthority()
        let issued = try authority.issue(hosts: ["127.0.0.1"])
        files = [authority.certificatePEM, issued.certificatePEM, issued.keyPEM].map(Self.file)
        // A free port; nobody else is expected to take it before the child does.
        let reserved = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        SocketIO.close(reserved.fd)
        child = Self.spawn(command(reserved.port, files[2], files[1]))
        loop = try EventLoop(name: "foreign")
        var policy = policy
        // The child takes a moment to listen: ask again soon.
        policy.dialInterval = .milliseconds(20)
        policy.reconnectDelayMax = .milliseconds(100)
        pool = HTTP2Pool(
            loop: loop, origin: Origin(host: "127.0.0.1", port: reserved.port),
            tls: try TLSContext.client(
                caFile: files[0], alpn: policy.speaksHTTP11 ? ["h2", "http/1.1"] : ["h2"]),
            policy: policy)
        pool.delegate = self
    }

    /// Ends the child and breaks the circle between pool and delegate.
    func stop() {
        pool.close()
        pool.delegate = nil
        kill(child, SIGKILL)
        var status: Int32 = 0
        waitpid(child, &status, 0)
        for file in files { unlink(file) }
    }

    /// Submits a request; answers its tag.
    @discardableResult
    func submit(_ path: String, body: [UInt8] = []) -> UInt64 {
        tags += 1
        let request = OutboundRequest()
        request.add(":method", "POST")
        request.add(":scheme", "https")
        request.add(":authority", pool.origin.authority)
        request.add(":path", path, .neverIndexed)
        request.add("authorization", "bearer secret", .neverIndexed)
        request.add("apns-topic", "com.example.app")
        request.body.append(body)
        pool.submit(request, tag: tags, deadline: .distantFuture)
        return tags
    }

    /// Turns until every submitted request has its result; false after half a minute.
    func finishAll() -> Bool { run { outcomes.count == Int(tags) } }

    func run(until condition: () -> Bool) -> Bool {
        let limit = SystemTime.shared.monotonic + .seconds(30)
        while !condition() {
            if SystemTime.shared.monotonic > limit { return false }
            loop.turn(waitingUpTo: .milliseconds(10))
        }
        return true
    }

    func pool(_ pool: HTTP2Pool, mayWrite tag: UInt64) -> Bool { true }

    func pool(
        _ pool: HTTP2Pool, finished tag: UInt64, _ request: OutboundRequest, _ result: HTTPResult
    ) {
        switch result {
        case .response(let response):
            outcomes[tag] = .response(
                status: response.status, body: String(decoding: response.body, as: UTF8.self))
        case .notProcessed(let fault): outcomes[tag] = .notProcessed(fault)
        case .ambiguous(let fault, _): outcomes[tag] = .ambiguous(fault)
        case .withdrawn: outcomes[tag] = .withdrawn
        }
    }

    func poolAlarm(_ pool: HTTP2Pool, _ alarm: PoolAlarm) { alarms.append(alarm) }

    private static func file(_ text: String) -> String {
        var name = Array("/tmp/bugle-http2-XXXXXX".utf8CString)
        let fd = mkstemp(&name)
        let bytes = Array(text.utf8)
        write(fd, bytes, bytes.count)
        close(fd)
        return String(decoding: name.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
    }

    private static func spawn(_ command: [String]) -> pid_t {
        var actions = posix_spawn_file_actions_t()
        posix_spawn_file_actions_init(&actions)
        defer { posix_spawn_file_actions_destroy(&actions) }
        posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0)
        var arguments = command.map { strdup($0) } + [nil]
        defer { for argument in arguments { free(argument) } }
        var pid: pid_t = 0
        let result = posix_spawnp(&pid, command[0], &actions, nil, &arguments, environ)
        precondition(result == 0, "\(command[0]) cannot be started")
        return pid
    }
}
