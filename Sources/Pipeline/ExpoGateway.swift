// Expo as one lane sends to it: up to a hundred messages in a request, few requests at a time, and
// no more messages a second than a project may send. A message waits for others for some
// milliseconds; when requests are under way or the pace is reached it waits for those, and requests
// grow. Each target settles by its own ticket.

internal import Base
internal import Compression
internal import Crypto
internal import EventLoop
internal import Gateways
internal import HTTP2
internal import Telemetry

/// Messages that share a request.
internal final class ExpoBatch {
    /// A target, and the message that was built for it.
    struct Entry {
        let target: TargetInFlight
        let message: OutboundRequest
    }

    var entries: [Entry]
    /// Out of which lease of permits it was paid; nil for a part of one that was paid.
    var lease: Int?
    /// Whether it is what is left of a larger one that had messages of several projects.
    let isOfOneProject: Bool
    let request = OutboundRequest()

    init(_ entries: [Entry], isOfOneProject: Bool = false) {
        self.entries = entries
        self.isOfOneProject = isOfOneProject
    }
}

/// How many messages may go now: never more than a project's rate in any second. Pure.
internal struct ExpoPace {
    /// The most that go at once.
    let burst: Int
    private let perSecond: Double
    private var left: Double
    private var countedAt = MonotonicTime(nanos: .min / 2)

    /// A part of a project's rate, for one of so many lanes.
    init(rate: Int, lanes: Int) {
        let share = Double(rate) / Double(lanes)
        burst = max(min(ExpoLimits.messagesPerRequest, Int(share / 6)), 1)
        perSecond = max(share - Double(burst), 1)
        left = Double(burst)
    }

    /// Takes room for so many messages, or for as many as may go at once; 0 when there is none yet.
    mutating func take(_ count: Int, at now: MonotonicTime) -> Int {
        let span = min(max((now - countedAt).seconds, 0), 1)
        left = min(left + perSecond * span, Double(burst))
        countedAt = now
        let wanted = min(count, burst)
        guard left >= Double(wanted) else { return 0 }
        left -= Double(wanted)
        return wanted
    }

    /// Gives room back that was not used.
    mutating func giveBack(_ count: Int) { left = min(left + Double(count), Double(burst)) }

    /// When there will be room for so many.
    func next(_ count: Int) -> MonotonicTime {
        let missing = max(Double(min(count, burst)) - left, 0)
        return countedAt + TimeSpan(nanos: Int64(missing / perSecond * 1e9) + 1_000_000)
    }
}

/// An app's Expo project on one lane. Loop-confined.
internal final class ExpoGateway {
    /// Builds the messages; another one after the access token was replaced.
    var renderer: ExpoRenderer
    let pool: HTTP2Pool
    /// Whom the connections trust besides the system's authorities.
    var authorities = TLSAuthorities.none
    let loop: EventLoop
    /// Set while the lane lives.
    var lane: Lane?
    /// What pool and reading know of the messages that wait here.
    let poolPace: PoolPace
    let receipts: ExpoReceipts

    private var waiting: ArraySlice<ExpoBatch.Entry> = []
    /// Parts of requests that were refused because of one of their messages.
    private var parts: [ExpoBatch] = []
    private var batches: [UInt64: ExpoBatch] = [:]
    private var pace: ExpoPace
    private let requestsMax: Int
    /// What the project may send, over all replicas; nil for no bound but its own pace.
    var permits: Permits?
    private var lastTag: UInt64 = 0
    private let json = ByteWriter(capacity: 64 << 10)
    private let gzip = GzipWriter()
    private lazy var timer = LoopTimer { [unowned self] in flush() }

    /// How long a message waits for others.
    private static let gather = TimeSpan.milliseconds(4)
    /// How soon it is looked again whether there are permits.
    private static let permitWait = TimeSpan.milliseconds(20)

    init(
        _ renderer: ExpoRenderer, pace poolPace: PoolPace, loop: EventLoop, lanes: Int,
        receipts: ExpoReceipts
    ) {
        self.renderer = renderer
        self.poolPace = poolPace
        self.loop = loop
        self.receipts = receipts
        pool = poolPace.pool
        pace = ExpoPace(rate: ExpoLimits.rate, lanes: lanes)
        requestsMax = max(ExpoLimits.requestsInFlight / lanes, 1)
    }

    /// Sends for a lane from now on.
    func serve(_ lane: Lane) {
        self.lane = lane
        pool.delegate = self
        receipts.gateway = self
    }

    func close() {
        loop.cancel(timer)
        receipts.close()
        lane = nil
    }

    /// Takes a message in that was built.
    func add(_ target: TargetInFlight, _ message: OutboundRequest) {
        let entry = ExpoBatch.Entry(target: target, message: message)
        if target.event?.eventClass == .critical {
            let place = waiting.firstIndex { $0.target.event?.eventClass != .critical }
            waiting.insert(entry, at: place ?? waiting.endIndex)
        } else {
            waiting.append(entry)
        }
        poolPace.waitingElsewhere = waiting.count
        if waiting.count >= ExpoLimits.messagesPerRequest { return flush() }
        if !timer.isScheduled { loop.schedule(timer, at: loop.now + Self.gather) }
    }

    /// Puts messages back to the front that were not written.
    func putBack(_ entries: [ExpoBatch.Entry]) {
        waiting = entries + waiting
        poolPace.waitingElsewhere = waiting.count
        if !timer.isScheduled { loop.schedule(timer, at: loop.now + Self.gather) }
    }

    /// Sends a refused request again in parts.
    func resend(_ parts: [ExpoBatch]) { self.parts.append(contentsOf: parts) }

    /// Writes what may go now.
    private func flush() {
        loop.cancel(timer)
        defer { poolPace.waitingElsewhere = waiting.count }
        while batches.count < requestsMax {
            if let part = parts.popLast() {
                submit(part)
                continue
            }
            guard !waiting.isEmpty else { return }
            let count = nextCount
            let taken = pace.take(count, at: loop.now)
            guard taken > 0 else { return loop.schedule(timer, at: pace.next(count)) }
            guard permits?.take(taken) ?? true else {
                pace.giveBack(taken)
                return loop.schedule(timer, at: loop.now + Self.permitWait)
            }
            let batch = ExpoBatch(Array(waiting.prefix(taken)))
            batch.lease = permits?.lease ?? 0
            waiting.removeFirst(taken)
            submit(batch)
        }
    }

    /// How many of those in front may share a request: a hundred, or as many as the shares of one allow
    /// that was in a refused request.
    private var nextCount: Int {
        var bound = ExpoLimits.messagesPerRequest
        var count = 0
        for entry in waiting {
            if entry.target.expoShare > 0 { bound = min(bound, max(entry.target.expoShare, count)) }
            guard count < bound else { break }
            count += 1
        }
        return max(count, 1)
    }

    /// A request was not written: what it may cost is there for others.
    func giveBack(_ batch: ExpoBatch) {
        // Parts of a refused request were paid for with it.
        guard let lease = batch.lease else { return }
        pace.giveBack(batch.entries.count)
        permits?.giveBack(batch.entries.count, of: lease)
    }

    private func submit(_ batch: ExpoBatch) {
        json.removeAll()
        for (index, entry) in batch.entries.enumerated() {
            json.append(index == 0 ? 0x5B : 0x2C)
            json.append(entry.message.body.bytes)
        }
        json.append(0x5D)
        batches[submit(batch.request, path: ExpoRenderer.sendPath)] = batch
    }

    /// Submits what `json` holds; returns its tag.
    private func submit(_ request: OutboundRequest, path: StaticString) -> UInt64 {
        request.reset()
        let isCompressed =
            json.count > ExpoLimits.compressedFrom
            && gzip?.compress(json.bytes, into: request.body) == true
        if !isCompressed { request.body.append(json.bytes) }
        renderer.writeHead(path: path, isCompressed: isCompressed, into: request)
        lastTag += 1
        let patience = lane?.settings.streamPatience ?? .seconds(10)
        pool.submit(request, tag: lastTag, deadline: loop.now + patience)
        return lastTag
    }

    /// Asks for receipts; returns the question's tag.
    func ask(for tickets: some Sequence<String>) -> UInt64 {
        json.removeAll()
        ExpoRenderer.writeReceiptsBody(tickets, to: json)
        return submit(OutboundRequest(), path: ExpoRenderer.receiptsPath)
    }
}

extension ExpoGateway: HTTP2PoolDelegate {
    /// The last look at every message of a request.
    func pool(_ pool: HTTP2Pool, mayWrite tag: UInt64) -> Bool {
        guard let batch = batches[tag], let lane else { return true }
        var mayWrite = true
        for entry in batch.entries where !lane.mayWrite(entry.target) { mayWrite = false }
        return mayWrite
    }

    func pool(
        _ pool: HTTP2Pool, finished tag: UInt64, _ request: OutboundRequest, _ result: HTTPResult
    ) {
        guard let lane else { return }
        guard let batch = batches.removeValue(forKey: tag) else {
            return receipts.answered(tag, result, lane)
        }
        for entry in batch.entries { entry.target.request = entry.message }
        lane.finished(batch, of: self, result)
        flush()
    }

    func poolAlarm(_ pool: HTTP2Pool, _ alarm: PoolAlarm) {
        lane?.alarms.pool(pool.origin, alarm, isPushService: false)
    }
}
