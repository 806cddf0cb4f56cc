// The token index alone, against a redis-server that `benchmarks/rows/index.py` started: what a
// look-up costs this process at a given pipeline depth, how fast an index is built and in how much
// memory, and where a builder goes on whose predecessor was killed. A look-up is the user's hash
// and the bucket's marker, decoded into addresses.

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
    /// The process kills itself when so many records are applied; 0 for never.
    var crashAfter = 0

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
            case "--crash-after": crashAfter = Int(value) ?? crashAfter
            default: fail("unknown option \(option)")
            }
        }
    }
}

/// CPU time of the calling thread alone.
func threadMicroseconds() -> Double {
    var time = timespec()
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
    return Double(time.tv_sec) * 1e6 + Double(time.tv_nsec) / 1e3
}

func cpuMicroseconds() -> Double {
    var usage = rusage()
    getrusage(__rusage_who_t(RUSAGE_SELF.rawValue), &usage)
    return Double(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1e6
        + Double(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec)
}

/// Memory of this process in MiB: a line of /proc/self/status, e.g. `VmRSS` now, `VmHWM` at most.
func memory(_ name: String) -> Double {
    guard let file = fopen("/proc/self/status", "r") else { fail("no /proc") }
    defer { fclose(file) }
    var line = [CChar](repeating: 0, count: 256)
    while fgets(&line, Int32(line.count), file) != nil {
        let text = String(
            decoding: line.prefix { $0 != 0 }.map { UInt8(bitPattern: $0) }, as: UTF8.self)
        guard text.hasPrefix(name + ":") else { continue }
        let digits = text.filter { $0.isASCII && $0.isNumber }
        return (Double(digits) ?? 0) / 1_024
    }
    fail("no \(name)")
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
        guard case .addresses(let found, _, _, _) = result else { fail("\(result)") }
        answered += 1
        addresses += found.count
        if answered % options.depth == 0 { for _ in 0..<options.depth { ask() } }
    }

    func indexReadinessChanged() {}
}

/// A value that two threads look at.
final class Shared<Value: Sendable>: Sendable {
    let value: Mutex<Value>

    init(_ value: Value) { self.value = Mutex(value) }
}

/// Keeps the index as it is: a reader trusts only what its writer renews, and only for a while
/// after the writer heard that the topics have ended. When Redis was slow the builder begins a new
/// epoch, and wants to hear it again.
final class Keeper: Sendable {
    private let builder: IndexBuilder
    private let epoch: Shared<UInt64>

    init(_ configuration: RedisConfiguration) throws {
        let epoch = Shared<UInt64>(0)
        builder = try IndexBuilder(
            makeWriter: { RedisTokenIndex(configuration).writer(on: $0) },
            report: { event in
                if case .readFrom(_, let number) = event { epoch.value.withLock { $0 = number } }
            })
        self.epoch = epoch
        builder.assign(partitions, of: partitions.count)
    }

    /// Nothing more is in the topics. To be said every second or so.
    func tell() {
        let number = epoch.value.withLock { $0 }
        if number > 0 { builder.caughtUp(epoch: number, asOf: SystemTime.shared.wall) }
    }

    func stop() { builder.stop() }
}

/// As many as topics have by default.
let partitions = (0..<24).flatMap {
    [IndexTopicPartition(.devices, $0), IndexTopicPartition(.invalidations, $0)]
}

func measureLookUps(_ options: Options) throws {
    let loop = try EventLoop(name: "look-up")
    let configuration = RedisConfiguration(host: "127.0.0.1", port: options.port)
    let keeper = try Keeper(configuration)
    defer { keeper.stop() }
    let index = RedisTokenIndex(configuration).reader(on: loop)
    let run = LookUpRun(index, options)
    let reminder = LoopTimer { keeper.tell() }
    func turn() {
        if !reminder.isScheduled { loop.schedule(reminder, at: loop.now + .milliseconds(500)) }
        loop.turn(waitingUpTo: .seconds(1))
    }
    while !index.isReady { turn() }
    for _ in 0..<options.depth { run.ask() }
    while run.answered < options.lookUps / 10 { turn() }
    let (answered, start) = (run.answered, SystemTime.shared.monotonic)
    let (cpu, all) = (threadMicroseconds(), cpuMicroseconds())
    while run.answered < options.lookUps { turn() }
    let count = Double(run.answered - answered)
    let wall = (SystemTime.shared.monotonic - start).seconds
    let used = threadMicroseconds() - cpu
    report([
        ("cpu_us", used / count), ("per_second", count / wall),
        ("addresses", Double(run.addresses) / Double(run.answered)),
        ("renewal_cpu_percent", (cpuMicroseconds() - all - used) / wall / 10_000),
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
    let events = Mutex<(epoch: UInt64, start: Int64, isComplete: Bool)>((0, 0, false))
    let changed = Semaphore()
    let configuration = RedisConfiguration(host: "127.0.0.1", port: options.port)
    let builder = try IndexBuilder(
        makeWriter: { RedisTokenIndex(configuration).writer(on: $0) },
        report: { event in
            switch event {
            case .readFrom(let positions, let epoch):
                let devices = positions.first { $0.topic == .devices && $0.partition == 0 }
                events.withLock { $0 = (epoch, devices?.nextOffset ?? 0, false) }
            case .complete: events.withLock { $0.isComplete = true }
            case .roomAvailable, .noticed: break
            case .unreadable(_, _, let error): fail("\(error)")
            case .refused(_, _, let text): fail(text)
            }
            changed.signal()
        })
    builder.assign(partitions, of: partitions.count)
    while events.withLock({ $0.epoch }) == 0 { changed.wait() }
    let start = SystemTime.shared.monotonic
    let cpu = cpuMicroseconds()
    let first = Int(events.withLock { $0.start })
    let total = 2 * options.users
    var early = memory("VmRSS")
    var restarts = -1
    while !events.withLock({ $0.isComplete }) {
        // A new epoch begins whenever Redis was away or slow: read again from where it says.
        let (epoch, from) = events.withLock { ($0.epoch, Int($0.start)) }
        let isCurrent = { events.withLock { $0.epoch } == epoch }
        restarts += 1
        for number in stride(from: from, to: total, by: batchSize) where isCurrent() {
            let batch = (number..<min(number + batchSize, total)).map {
                makeRecord($0, user: $0 / 2)
            }
            while isCurrent(), !builder.feed(batch, epoch: epoch) { changed.wait() }
            if options.crashAfter > 0, builder.progress.applied >= UInt64(options.crashAfter) {
                kill(getpid(), SIGKILL)
            }
            if number - first <= (total - first) / 4 { early = memory("VmRSS") }
        }
        builder.caughtUp(epoch: epoch, asOf: SystemTime.shared.wall)
        while isCurrent(), !events.withLock({ $0.isComplete }) { changed.wait() }
    }
    let count = Double(total - first)
    report([
        ("start", Double(first)), ("restarts", Double(restarts)),
        ("cpu_us", (cpuMicroseconds() - cpu) / count),
        ("per_second", count / (SystemTime.shared.monotonic - start).seconds),
        ("rss_quarter_mib", early), ("rss_end_mib", memory("VmRSS")),
        ("rss_most_mib", memory("VmHWM")),
    ])
    builder.stop()
}

/// Records handed over at a time, as many as the feed of a running process does.
let batchSize = 512

/// What the store holds.
func countAddresses(_ options: Options) throws {
    let configuration = RedisConfiguration(host: "127.0.0.1", port: options.port)
    let index = RedisTokenIndex(configuration)
    let counts = try RedisIndexOperator(index).statistics { _ in }
    report([("installs", Double(counts.installs)), ("active", Double(counts.count(.active)))])
}

let options = Options(CommandLine.arguments.dropFirst())
do {
    switch options.mode {
    case "look-up": try measureLookUps(options)
    case "build": try measureBuilding(options)
    case "count": try countAddresses(options)
    default: fail("unknown mode \(options.mode)")
    }
} catch {
    fail("\(error)")
}
