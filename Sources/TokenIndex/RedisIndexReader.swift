// Look-ups in Redis. Each is two commands in one pipeline: the user's hash, and behind it the
// bucket's marker, so that an answer counts only when the bucket was still whole after it was
// read. Everything else waits: for a connection, or for the markers to be complete.

internal import Base
internal import EventLoop
internal import Redis

internal final class RedisIndexReader: TokenIndex, RedisReplyHandler {
    /// An open look-up, reused for later ones. Its place in `lookUps` is in the tags of its
    /// commands. Not checked for exclusivity at run time: each access is one statement.
    private final class LookUp {
        @exclusivity(unchecked) var app = ""
        @exclusivity(unchecked) var userID = ""
        @exclusivity(unchecked) var tag: UInt64 = 0
        @exclusivity(unchecked) var askedAt = MonotonicTime(nanos: 0)
        @exclusivity(unchecked) var found: NewestAddresses
        /// A field whose value has not arrived yet: long replies come in parts.
        @exclusivity(unchecked) var openField: [UInt8]?
        @exclusivity(unchecked) var fault: String?
        /// A connection ended, or a server refused, before the answer was complete.
        @exclusivity(unchecked) var isCutOff = false
        /// Commands without a reply.
        @exclusivity(unchecked) var openCommands = 0
        /// The bucket's marker says that the bucket is whole.
        @exclusivity(unchecked) var isTrusted = false
        /// A command went to another node: the marker may have been read before the hash was.
        @exclusivity(unchecked) var isRedirected = false

        init(limit: Int) { found = NewestAddresses(limit: limit) }

        func forgetAnswer(limit: Int) {
            found = NewestAddresses(limit: limit)
            openField = nil
            fault = nil
            isCutOff = false
            isTrusted = false
            isRedirected = false
        }
    }

    var delegate: (any TokenIndexDelegate)?
    private(set) var readiness = IndexReadiness.disconnected("not connected yet") {
        didSet { if readiness != oldValue { delegate?.indexReadinessChanged() } }
    }

    private let client: RedisClient
    private let layout: RedisLayout
    private let loop: EventLoop
    private let addressesPerUser: Int
    private let commands: LookUpCommands
    @exclusivity(unchecked) private var lookUps: [LookUp] = []
    @exclusivity(unchecked) private var free: [Int] = []
    @exclusivity(unchecked) private var openCount = 0
    /// Places of look-ups that wait to be sent again.
    private var waiting: [Int] = []
    private var refused: [UInt64] = []
    private lazy var refusalTimer = LoopTimer { [unowned self] in answerRefused() }
    private lazy var surveyTimer = LoopTimer { [unowned self] in survey() }

    init(
        _ configuration: RedisConfiguration, layout: RedisLayout, on loop: EventLoop,
        addressesPerUser: Int, observer: ((RedisEvent) -> Void)?,
        latencyObserver: ((TimeSpan) -> Void)?
    ) {
        self.layout = layout
        self.loop = loop
        commands = LookUpCommands(layout)
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
        let place = free.popLast() ?? lookUps.count
        if place == lookUps.count { lookUps.append(LookUp(limit: addressesPerUser)) }
        let lookUp = lookUps[place]
        lookUp.app = app
        lookUp.userID = userID
        lookUp.tag = tag
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
        let lookUp = lookUps[place]
        let bucket = RedisLayout.bucket(of: lookUp.userID, app: lookUp.app)
        let tag = UInt64(place) << 1
        let slot = commands.slot(of: bucket)
        let error = client.send(slot: slot, to: self, tag: tag) {
            commands.append(user: lookUp.userID, app: lookUp.app, bucket, to: $0)
        }
        if error != nil {
            waiting.append(place)
            return
        }
        lookUp.askedAt = loop.now
        let second = client.send(slot: slot, to: self, tag: tag | 1) {
            commands.append(marker: bucket, to: $0)
        }
        // Room for both is certain: far fewer look-ups may be open than commands may be pending.
        precondition(second == nil, "a connection that took a command takes the next one")
        lookUp.openCommands = 2
    }

    /// Reads the marker once more, behind a hash that came from another node than expected.
    private func sendMarker(_ place: Int) {
        let lookUp = lookUps[place]
        let bucket = RedisLayout.bucket(of: lookUp.userID, app: lookUp.app)
        lookUp.isRedirected = false
        let error = client.send(
            slot: commands.slot(of: bucket), to: self, tag: UInt64(place) << 1 | 1
        ) { commands.append(marker: bucket, to: $0) }
        if error == nil {
            lookUp.openCommands = 1
        } else {
            lookUp.isCutOff = true
            finish(place)
        }
    }

    private func sendWaiting(where isTrusted: (LookUp) -> Bool) {
        let places = waiting
        waiting = []
        for place in places {
            if isTrusted(lookUps[place]) {
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
            lookUps[place].isTrusted = reply.bytes.elementsEqual([0x31])
        }
        commandEnded(place)
    }

    func repliedInPart(_ reply: RedisReply, tag: UInt64) -> Bool {
        guard tag & 1 == 0 else { return false }
        collect(reply, Int(tag >> 1))
        return true
    }

    func failed(_ error: RedisError, tag: UInt64) {
        let place = Int(tag >> 1)
        switch error {
        // Of a user's hash it concerns that user; of a marker, the bucket.
        case .refused(let refusal) where refusal.kind == .wrongType && tag & 1 == 0:
            lookUps[place].fault = "\(refusal)"
        default:
            lookUps[place].isCutOff = true
        }
        commandEnded(place)
    }

    /// A marker that comes later than expected is as good.
    func redirected(tag: UInt64) { if tag & 1 == 0 { lookUps[Int(tag >> 1)].isRedirected = true } }

    private func commandEnded(_ place: Int) {
        let lookUp = lookUps[place]
        lookUp.openCommands -= 1
        guard lookUp.openCommands == 0 else { return }
        if lookUp.isRedirected && !lookUp.isCutOff {
            sendMarker(place)
        } else {
            finish(place)
        }
    }

    /// Takes fields and values in turn.
    private func collect(_ reply: RedisReply, _ place: Int) {
        let lookUp = lookUps[place]
        lookUp.found.reserve(reply.count / 2)
        var field: RedisReply?
        reply.forEachElement { element in
            if let name = field {
                field = nil
                take(name.bytes, element.bytes, lookUp)
            } else if let open = lookUp.openField {
                lookUp.openField = nil
                open.withUnsafeBytes { take($0, element.bytes, lookUp) }
            } else {
                field = element
            }
        }
        if let field { lookUp.openField = Array(field.bytes) }
    }

    private func take(
        _ id: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer, _ lookUp: LookUp
    ) {
        guard let colon = value.firstIndex(of: 0x3A),
            let address = DeviceAddress(
                id: id, stored: UnsafeRawBufferPointer(rebasing: value[(colon + 1)...]))
        else {
            lookUp.fault = "an address in it is damaged"
            return
        }
        // The entry itself says whose it is, whatever key it was found under.
        guard address.belongs(to: lookUp.userID) else {
            lookUp.fault = "an address in it belongs to another user"
            return
        }
        lookUp.found.insert(address)
    }

    private func finish(_ place: Int) {
        let lookUp = lookUps[place]
        if lookUp.isCutOff || (!lookUp.isTrusted && lookUp.fault == nil) {
            waiting.append(place)
            if lookUp.isCutOff { surveySoon() } else { becomeIncomplete() }
            lookUp.forgetAnswer(limit: addressesPerUser)
            return
        }
        let (tag, askedAt) = (lookUp.tag, lookUp.askedAt)
        let result: LookUpResult
        if let fault = lookUp.fault {
            result = .unavailable(.unreadable(fault))
        } else {
            let addresses = lookUp.found.finish()
            result = .addresses(addresses, dropped: lookUp.found.dropped, at: askedAt)
        }
        lookUp.forgetAnswer(limit: addressesPerUser)
        free.append(place)
        openCount -= 1
        delegate?.lookUpFinished(tag: tag, result)
    }
}

// MARK: - Readiness

extension RedisIndexReader {
    private func connectionChanged(_ event: RedisEvent) {
        switch event {
        case .ready: survey()
        case .lost(let error), .attemptFailed(let error):
            readiness = .disconnected("\(error)")
            // Some nodes of a cluster may serve on.
            if client.isUsable { surveySoon() } else { loop.cancel(surveyTimer) }
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
        guard client.isUsable else { return }
        MarkerSurvey.start(client, layout) { [weak self] in self?.surveyed($0, $1) }
    }

    private func surveyed(_ isComplete: [Bool], _ error: RedisError?) {
        guard client.isUsable else { return }
        let count = isComplete.count { $0 }
        if count == isComplete.count {
            readiness = .ready
        } else {
            // While a node is missing, why it is was said already.
            if let error, error != .notConnected {
                readiness = .disconnected("\(error)")
            } else if client.isReady {
                readiness = .incomplete("\(count) of \(isComplete.count) buckets are filled")
            }
            surveySoon()
        }
        sendWaiting { isComplete[RedisLayout.bucket(of: $0.userID, app: $0.app)] }
    }
}
