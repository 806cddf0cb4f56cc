// A load generator over the HTTP/2 client alone: saturates a server with one request over and
// over and tells what it cost. `benchmarks/run` starts it next to h2load, against the same server
// and with the same headers, body, connections and streams.

import Base
import Crypto
import EventLoop
import Glibc
import HTTP2

/// What the command line asks for.
struct Options {
    var requests = 100_000
    var connections = 2
    var streams = 32
    var port: UInt16 = 8443
    var caFile = ""
    var bodyBytes = 300
    var path = "/3/device/token"
    /// Header fields besides the pseudo-header fields; `!` before a name means never indexed.
    var headers: [(name: String, value: String, indexing: FieldIndexing)] = []

    init(_ arguments: ArraySlice<String>) {
        var rest = arguments
        while let option = rest.popFirst() {
            let value = rest.popFirst() ?? ""
            switch option {
            case "--requests": requests = Int(value) ?? requests
            case "--connections": connections = Int(value) ?? connections
            case "--streams": streams = Int(value) ?? streams
            case "--port": port = UInt16(value) ?? port
            case "--ca": caFile = value
            case "--body-bytes": bodyBytes = Int(value) ?? bodyBytes
            case "--path": path = value
            case "--header": add(header: value)
            default: fail("unknown option \(option)")
            }
        }
    }

    private mutating func add(header: String) {
        guard let colon = header.firstIndex(of: ":") else { fail("no colon in \(header)") }
        var name = header[..<colon]
        let isSecret = name.hasPrefix("!")
        if isSecret { name.removeFirst() }
        let value = header[header.index(after: colon)...].drop { $0 == " " }
        headers.append((String(name), String(value), isSecret ? .neverIndexed : .indexable))
    }
}

func warn(_ text: String) {
    var line = text + "\n"
    line.withUTF8 { _ = write(2, $0.baseAddress, $0.count) }
}

func fail(_ text: String) -> Never {
    warn("client benchmark: \(text)")
    exit(2)
}

/// The names that header options may use; a request's names are literals.
let knownNames: [StaticString] = [
    "authorization", "apns-topic", "apns-push-type", "apns-priority", "apns-expiration", "apns-id",
    "apns-collapse-id", "content-type",
]

/// Keeps the pool busy: every answer submits its request again until all have been asked for.
final class Load: HTTP2PoolDelegate {
    private let loop: EventLoop
    private let options: Options
    private var left: Int
    private var running = 0
    private(set) var answered = 0
    private(set) var failed = 0
    private(set) var statuses: [Int: Int] = [:]

    init(loop: EventLoop, options: Options) {
        self.loop = loop
        self.options = options
        left = options.requests
    }

    func start(_ pool: HTTP2Pool) {
        for _ in 0..<min(left, options.connections * options.streams) {
            submit(makeRequest(pool.origin), to: pool)
        }
    }

    private func submit(_ request: OutboundRequest, to pool: HTTP2Pool) {
        left -= 1
        running += 1
        pool.submit(request, tag: 0, deadline: .distantFuture)
    }

    private func makeRequest(_ origin: Origin) -> OutboundRequest {
        let request = OutboundRequest()
        request.add(":method", "POST")
        request.add(":scheme", "https")
        request.add(":authority", origin.authority)
        let isSecret = options.headers.contains { $0.indexing == .neverIndexed }
        request.add(":path", options.path, isSecret ? .neverIndexed : .indexable)
        for header in options.headers {
            guard let name = knownNames.first(where: { $0.description == header.name }) else {
                fail("\(header.name) is not among the known names")
            }
            request.add(name, header.value, header.indexing)
        }
        for index in 0..<options.bodyBytes { request.body.append(UInt8(97 + index % 26)) }
        return request
    }

    func pool(_ pool: HTTP2Pool, mayWrite tag: UInt64) -> Bool { true }

    func pool(
        _ pool: HTTP2Pool, finished tag: UInt64, _ request: OutboundRequest, _ result: HTTPResult
    ) {
        running -= 1
        if case .response(let response) = result {
            answered += 1
            statuses[response.status, default: 0] += 1
        } else {
            failed += 1
        }
        if left > 0 { submit(request, to: pool) } else if running == 0 { loop.handle.stop() }
    }

    func poolAlarm(_ pool: HTTP2Pool, _ alarm: PoolAlarm) { warn("\(alarm)") }
}

func cpuMicroseconds() -> Int {
    var usage = rusage()
    getrusage(Int32(RUSAGE_SELF.rawValue), &usage)
    let seconds = usage.ru_utime.tv_sec + usage.ru_stime.tv_sec
    return seconds * 1_000_000 + Int(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec)
}

func run() throws {
    signal(SIGPIPE, SIG_IGN)
    let options = Options(CommandLine.arguments.dropFirst())
    let loop = try EventLoop(name: "load")
    var policy = PoolPolicy.apns(
        connectionsMin: options.connections, connectionsMax: options.connections)
    policy.streamsMax = options.streams
    policy.dialInterval = .zero
    let pool = HTTP2Pool(
        loop: loop, origin: Origin(host: "127.0.0.1", port: options.port),
        tls: try TLSContext.client(caFile: options.caFile, alpn: ["h2"]), policy: policy)
    let load = Load(loop: loop, options: options)
    pool.delegate = load
    let start = SystemTime.shared.monotonic
    load.start(pool)
    loop.run()
    let wall = SystemTime.shared.monotonic - start
    pool.close()
    let cpu = cpuMicroseconds()
    print(
        """
        {"requests": \(options.requests), "answered": \(load.answered), "failed": \(load.failed), \
        "statuses": "\(load.statuses)", "cpu_us": \(cpu), "wall_ms": \(wall.millis), \
        "cpu_us_per_request": \(Double(cpu) / Double(options.requests))}
        """)
}

try run()
