// Look-ups in Redis. Each is two commands in one pipeline: the user's hash, and behind it the
// bucket's marker, so that an answer counts only when the bucket was still whole after it was
// read. Everything else waits: for a connection, or for the markers to be complete.

internal import Base
internal import EventLoop
internal import Redis

internal final class RedisIndexReader: TokenIndex, RedisReplyHandler {
    /// An open look-up. Its place in `lookUps` is in the tags of its commands.
    private struct LookUp {
        var app: String
        var userID: String
        var tag: UInt64
        var askedAt = MonotonicTime(nanos: 0)
        var found: NewestAddresses
        /// A field whose value has not arrived yet: long replies come in parts.
        var openField: [UInt8]?
        var fault: String?
        /// The connection ended before the answer was complete.
        var isCutOff = false
    }

    var delegate: (any TokenIndexDelegate)?
    private(set) var readiness = IndexReadiness.disconnected("not connected yet") {
        didSet { if readiness != oldValue { delegate?.indexReadinessChanged() } }
    }

    private let client: RedisClient
    private let layout: RedisLayout
    private let loop: EventLoop
    private let addressesPerUser: Int
    private var lookUps: [LookUp?] = []
    private var free: [Int] = []
    private var openCount = 0
    /// Places of look-ups that wait to be sent again.
    private var waiting: [Int] = []
    private var refused: [UInt64] = []
    private let keyBytes = ByteWriter(capacity: 512)
    private lazy var refusalTimer = LoopTimer { [unowned self] in answerRefused() }
    private lazy var surveyTimer = LoopTimer { [unowned self] in survey() }

    init(
        _ configuration: RedisConfiguration, layout: RedisLayout, on loop: EventLoop,
        addressesPerUser: Int, observer: ((RedisEvent) -> Void)?,
        latencyObserver: ((TimeSpan) -> Void)?
    ) {
        self.layout = layout
        self.loop = loop
        self.addressesPerUser = addressesPerUser
        client = RedisClient(configuration, on: loop)
        client.latencyObserver = latencyObserver
        client.observer = { [unowned self] event in
            observer?(event)
            connectionChanged(event)
        }
        client.start()
    }

    func lookUp(app: String, userID: String, tag: UInt64) {
        guard openCount < IndexLimits.lookUpsOpen else {
            refused.append(tag)
            loop.schedule(refusalTimer, at: loop.now)
            return
        }
        openCount += 1
        let lookUp = LookUp(
            app: app, userID: userID, tag: tag, found: NewestAddresses(limit: addressesPerUser))
        let place: Int
        if let reused = free.popLast() {
            place = reused
            lookUps[place] = lookUp
        } else {
            place = lookUps.count
            lookUps.append(lookUp)
        }
        send(place)
    }

    func stop() {
        loop.cancel(refusalTimer)
        loop.cancel(surveyTimer)
        delegate = nil
        client.close()
    }

    private func answerRefused() {
        let tags = refused
        refused = []
        for tag in tags {
            delegate?.lookUpFinished(
                tag: tag, .unavailable(.tooManyWaiting(limit: IndexLimits.lookUpsOpen)))
        }
    }
}

// MARK: - Asking

extension RedisIndexReader {
    private func send(_ place: Int) {
        guard let lookUp = lookUps[place] else { return }
        keyBytes.removeAll()
        let bucket = layout.append(user: lookUp.userID, app: lookUp.app, to: keyBytes)
        let tag = UInt64(place) << 1
        let error = client.send(to: self, tag: tag) { writer in
            writer.append(commandOf: 2)
            writer.append(argument: "HGETALL" as StaticString)
            writer.append(argument: keyBytes.bytes)
        }
        if error != nil {
            waiting.append(place)
            return
        }
        lookUps[place]?.askedAt = loop.now
        keyBytes.removeAll()
        layout.append(marker: bucket, to: keyBytes)
        let second = client.send(to: self, tag: tag | 1) { writer in
            writer.append(commandOf: 3)
            writer.append(argument: "HGET" as StaticString)
            writer.append(argument: keyBytes.bytes)
            writer.append(argument: "c" as StaticString)
        }
        // Room for both is certain: far fewer look-ups may be open than commands may be pending.
        precondition(second == nil, "a connection that took a command takes the next one")
    }

    private func sendWaiting(where isTrusted: (LookUp) -> Bool) {
        let places = waiting
        waiting = []
        for place in places {
            if let lookUp = lookUps[place], isTrusted(lookUp) {
                send(place)
            } else {
                waiting.append(place)
            }
        }
    }
}

// MARK: - Answers

extension RedisIndexReader {
    func replied(_ reply: RedisReply, tag: UInt64) {
        let place = Int(tag >> 1)
        if tag & 1 == 0 {
            collect(reply, place)
        } else {
            finish(place, isTrusted: reply.bytes.elementsEqual([0x31]))
        }
    }

    func repliedInPart(_ reply: RedisReply, tag: UInt64) -> Bool {
        guard tag & 1 == 0 else { return false }
        collect(reply, Int(tag >> 1))
        return true
    }

    func failed(_ error: RedisError, tag: UInt64) {
        let place = Int(tag >> 1)
        guard lookUps[place] != nil else { return }
        switch error {
        case .refused(let refusal) where refusal.kind == .wrongType:
            lookUps[place]?.fault = "\(refusal)"
        default:
            lookUps[place]?.isCutOff = true
        }
        if tag & 1 == 1 { finish(place, isTrusted: false) }
    }

    /// Takes fields and values in turn.
    private func collect(_ reply: RedisReply, _ place: Int) {
        guard var lookUp = lookUps[place] else { return }
        // Out of the array while it is changed, so that its storage is not copied.
        lookUps[place] = nil
        var field: RedisReply?
        reply.forEachElement { element in
            if let open = lookUp.openField {
                lookUp.openField = nil
                open.withUnsafeBytes { take($0, element.bytes, &lookUp) }
            } else if let name = field {
                field = nil
                take(name.bytes, element.bytes, &lookUp)
            } else {
                field = element
            }
        }
        if let field { lookUp.openField = Array(field.bytes) }
        lookUps[place] = lookUp
    }

    private func take(
        _ id: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer, _ lookUp: inout LookUp
    ) {
        guard let colon = value.firstIndex(of: 0x3A),
            let address = DeviceAddress(
                id: id, stored: UnsafeRawBufferPointer(rebasing: value[(colon + 1)...]))
        else {
            lookUp.fault = "an address in it is damaged"
            return
        }
        // The entry itself says whose it is, whatever key it was found under.
        let isTheirs = address.withField(.userID) { lookUp.userID.utf8.elementsEqual($0) }
        guard isTheirs else {
            lookUp.fault = "an address in it belongs to another user"
            return
        }
        lookUp.found.insert(address)
    }

    private func finish(_ place: Int, isTrusted: Bool) {
        guard var lookUp = lookUps[place] else { return }
        if lookUp.isCutOff || (!isTrusted && lookUp.fault == nil) {
            lookUps[place] = LookUp(
                app: lookUp.app, userID: lookUp.userID, tag: lookUp.tag,
                found: NewestAddresses(limit: addressesPerUser))
            waiting.append(place)
            if lookUp.isCutOff { surveySoon() } else { becomeIncomplete() }
            return
        }
        lookUps[place] = nil
        free.append(place)
        openCount -= 1
        if let fault = lookUp.fault {
            delegate?.lookUpFinished(tag: lookUp.tag, .unavailable(.unreadable(fault)))
        } else {
            let addresses = lookUp.found.finish()
            delegate?.lookUpFinished(
                tag: lookUp.tag,
                .addresses(addresses, dropped: lookUp.found.dropped, at: lookUp.askedAt))
        }
    }
}

// MARK: - Readiness

extension RedisIndexReader {
    private func connectionChanged(_ event: RedisEvent) {
        switch event {
        case .ready: survey()
        case .lost(let error), .attemptFailed(let error):
            loop.cancel(surveyTimer)
            readiness = .disconnected("\(error)")
        }
    }

    private func becomeIncomplete() {
        if readiness == .ready { readiness = .incomplete("a bucket's marker is missing") }
        surveySoon()
    }

    private func surveySoon() {
        if !surveyTimer.isScheduled {
            loop.schedule(surveyTimer, at: loop.now + IndexLimits.readinessInterval)
        }
    }

    private func survey() {
        guard client.isReady else { return }
        MarkerSurvey.start(client, layout) { [unowned self] in surveyed($0) }
    }

    private func surveyed(_ isComplete: [Bool]) {
        let count = isComplete.count { $0 }
        if count == isComplete.count {
            readiness = .ready
        } else {
            readiness = .incomplete("\(count) of \(isComplete.count) buckets are filled")
            surveySoon()
        }
        sendWaiting { isComplete[RedisLayout.bucket(of: $0.userID, app: $0.app)] }
    }
}
