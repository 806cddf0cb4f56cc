// The token index alone, against a redis-server that `benchmarks/rows/index.py` started: what a
// look-up costs this process at a given pipeline depth, and how fast an index is built. A look-up
// is the user's hash and the bucket's marker, decoded into addresses.

import Base
import EventLoop
import Glibc
import Redis
import Synchronization
import TokenIndex

func fail(_ text: String) -> Never {
    var line = "index benchmark: \(text)\n"
    line.withUTF8 { _ = write(2, $0.baseAddress, $0.count) }
    exit(2)
}

/// What the command line asks for.
struct Options {
    var port: UInt16 = 6379
    var users = 10_000
    var lookUps = 200_000
    var depth = 32
    var mode = "look-up"

    init(_ arguments: ArraySlice<String>) {
        var rest = arguments
        while let option = rest.popFirst() {
            let value = rest.popFirst() ?? ""
            switch option {
            case "--port": port = UInt16(value) ?? port
            case "--users": users = Int(value) ?? users
            case "--look-ups": lookUps = Int(value) ?? lookUps
            case "--depth": depth = Int(value) ?? depth
            case "--mode": mode = value
            default: fail("unknown option \(option)")
            }
        }
    }
}

func cpuMicroseconds() -> Double {
    var usage = rusage()
    getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    return Double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6
        + Double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec)
}

func report(_ values: [(String, Double)]) {
    let members = values.map { "\"\($0.0)\": \($0.1)" }
    print("{\(members.joined(separator: ", "))}")
}

/// Keeps as many look-ups open as asked for until enough are answered.
final class LookUpRun: TokenIndexDelegate {
    private let index: any TokenIndex
    private let options: Options
    private var next: UInt64 = 0
    private var random = SeededRandom(seed: 1)
    private let names: [String]
    var answered = 0
    var addresses = 0

    init(_ index: any TokenIndex, _ options: Options) {
        self.index = index
        self.options = options
        names = (0..<options.users).map { "user-\($0)" }
        index.delegate = self
    }

    func ask() {
        next += 1
        let name = names[Int.random(in: 0..<names.count, using: &random)]
        index.lookUp(app: "shop", userID: name, tag: next)
    }

    /// Asks in batches of the pipeline's depth, as a lane does with the events of a turn.
    func lookUpFinished(tag: UInt64, _ result: LookUpResult) {
        guard case .addresses(let found, _, _) = result else { fail("\(result)") }
        answered += 1
        addresses += found.count
        if answered % options.depth == 0 { for _ in 0..<options.depth { ask() } }
    }

    func indexReadinessChanged() {}
}

func measureLookUps(_ options: Options) throws {
    let loop = try EventLoop(name: "look-up")
    let configuration = RedisConfiguration(host: "127.0.0.1", port: options.port)
    let index = RedisTokenIndex(configuration).reader(on: loop)
    let run = LookUpRun(index, options)
    while !index.isReady { loop.turn(waitingUpTo: .seconds(1)) }
    for _ in 0..<options.depth { run.ask() }
    while run.answered < options.lookUps / 10 { loop.turn(waitingUpTo: .seconds(1)) }
    let (answered, cpu, start) = (run.answered, cpuMicroseconds(), SystemTime.shared.monotonic)
    while run.answered < options.lookUps { loop.turn(waitingUpTo: .seconds(1)) }
    let count = Double(run.answered - answered)
    let wall = (SystemTime.shared.monotonic - start).seconds
    report([
        ("cpu_us", (cpuMicroseconds() - cpu) / count), ("per_second", count / wall),
        ("addresses", Double(run.addresses) / Double(run.answered)),
    ])
}

/// Two addresses per user, as records of the topic.
func makeRecord(_ number: Int, user: Int) -> IndexInput {
    let digits = String(number, radix: 16)
    let token = String(repeating: "0", count: 64 - digits.utf8.count) + digits
    let value = """
        {"v":1,"app":"shop","install_id":"2f1c3d4e-0000-4000-8000-\(100_000_000_000 + number)",\
        "kind":"alert","user_id":"user-\(user)","platform":"ios","gateway":"apns",\
        "environment":"production","token":"\(token)","apns_topic":"com.example.shop",\
        "version":1,"registered_at":1735689600000,"last_seen_at":1735689600000,\
        "permission":"granted","locale":"de-AT","time_zone":"Europe/Vienna","app_version":"4.2.1"}
        """
    return IndexInput(
        topic: .devices,
        position: TopicPosition(
            partition: 0, offset: Int64(number), timestamp: 1_735_689_600_000),
        key: Array("shop/2f1c3d4e-0000-4000-8000-\(100_000_000_000 + number)".utf8),
        value: Array(value.utf8))
}

func measureBuilding(_ options: Options) throws {
    let events = Mutex<(epoch: UInt64, isComplete: Bool)>((0, false))
    let changed = Semaphore()
    let configuration = RedisConfiguration(host: "127.0.0.1", port: options.port)
    let builder = try IndexBuilder(
        makeWriter: { RedisTokenIndex(configuration).writer(on: $0) },
        report: { event in
            switch event {
            case .readFrom(_, let epoch): events.withLock { $0.epoch = epoch }
            case .complete: events.withLock { $0.isComplete = true }
            case .roomAvailable, .noticed: break
            case .unreadable(_, _, let error): fail("\(error)")
            case .refused(_, _, let text): fail(text)
            }
            changed.signal()
        })
    builder.assign([.init(.devices, 0), .init(.invalidations, 0)], of: 2)
    while events.withLock({ $0.epoch }) == 0 { changed.wait() }
    let start = SystemTime.shared.monotonic
    let cpu = cpuMicroseconds()
    for user in 0..<options.users {
        let batch = [makeRecord(2 * user, user: user), makeRecord(2 * user + 1, user: user)]
        while !builder.feed(batch, epoch: 1) { changed.wait() }
    }
    builder.caughtUp(epoch: 1)
    while !events.withLock({ $0.isComplete }) { changed.wait() }
    let count = Double(2 * options.users)
    report([
        ("cpu_us", (cpuMicroseconds() - cpu) / count),
        ("per_second", count / (SystemTime.shared.monotonic - start).seconds),
    ])
    builder.stop()
}

let options = Options(CommandLine.arguments.dropFirst())
do {
    switch options.mode {
    case "look-up": try measureLookUps(options)
    case "build": try measureBuilding(options)
    default: fail("unknown mode \(options.mode)")
    }
} catch {
    fail("\(error)")
}
