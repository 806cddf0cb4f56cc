// Look-ups in Redis. Each is two commands in one pipeline: the user's hash, and behind it the
// bucket's marker, so that an answer counts only when the bucket was still whole after it was
// read. Everything else waits: for a connection, or for the markers to be complete. The addresses
// of a user with very many are read on in pages, each sent when the one before is here, so that
// other look-ups pass between them; the marker is read again behind the last page.

internal import Base
internal import EventLoop
internal import Redis

internal final class RedisIndexReader: TokenIndex, RedisReplyHandler {
    /// What a command asks for; with the look-up's place in its tag.
    fileprivate enum Question: UInt64 { case addresses, page, marker }

    /// An open look-up, reused for later ones. Its place in `lookUps` is in the tags of its
    /// commands. Not checked for exclusivity at run time: each access is one statement.
    fileprivate final class LookUp {
        @exclusivity(unchecked) var app = ""
        @exclusivity(unchecked) var userID = ""
        @exclusivity(unchecked) var tag: UInt64 = 0
        @exclusivity(unchecked) var askedAt = MonotonicTime(nanos: 0)
        @exclusivity(unchecked) var found: NewestAddresses
        /// A field whose value has not arrived yet: long replies come in parts.
        @exclusivity(unchecked) var openField: [UInt8]?
        /// Where the pages go on; nil when there are none, or no more.
        @exclusivity(unchecked) var cursor: String?
        @exclusivity(unchecked) var fault: String?
        /// What the person said for all devices.
        @exclusivity(unchecked) var user: UserRecord?
        /// A connection ended, or a server refused, before the answer was complete.
        @exclusivity(unchecked) var isCutOff = false
        /// Commands without a reply.
        @exclusivity(unchecked) var openCommands = 0
        /// The bucket's marker says that the bucket is whole.
        @exclusivity(unchecked) var isTrusted = false
        /// A command went to another node: the marker may have been read before the hash was.
        @exclusivity(unchecked) var isRedirected = false
        /// Some of its keys were asked for at another node.
        @exclusivity(unchecked) var wasRedirected = false

        init(limit: Int) { found = NewestAddresses(limit: limit) }

        func forgetAnswer(limit: Int) {
            found = NewestAddresses(limit: limit)
            openField = nil
            cursor = nil
            fault = nil
            user = nil
            isCutOff = false
            isTrusted = false
            isRedirected = false
            wasRedirected = false
        }
    }

    /// The way back from a survey, cut by `stop`. No weak reference: the first one to an object
    /// makes every later retain and release of it several times as slow, and each command of a
    /// look-up retains the reader.
    private final class Link {
        var reader: RedisIndexReader?
    }

    var delegate: (any TokenIndexDelegate)?
    private(set) var readiness = IndexReadiness.disconnected("not connected yet") {
        didSet { if readiness != oldValue { delegate?.indexReadinessChanged() } }
    }

    private let client: RedisClient
    private let layout: RedisLayout
    private let loop: EventLoop
    private let addressesPerUser: Int
    private let staleness: StalenessPolicy
    @exclusivity(unchecked) private var trust: TrustRule
    private let fuses: FuseWatch
    private let commands: LookUpCommands
    @exclusivity(unchecked) private var lookUps: [LookUp] = []
    @exclusivity(unchecked) private var free: [Int] = []
    @exclusivity(unchecked) private var openCount = 0
    /// Places of look-ups that wait to be sent again.
    private var waiting: [Int] = []
    /// Places of look-ups whose empty answer waits for a survey of the markers: see `isDoubtful`.
    private var doubtful: [Int] = []
    private var surveysOpen = 0
    private let link = Link()
    private var refused: [UInt64] = []
    private lazy var refusalTimer = LoopTimer { [unowned self] in answerRefused() }
    private lazy var surveyTimer = LoopTimer { [unowned self] in survey() }

    init(
        _ configuration: RedisConfiguration, layout: RedisLayout, on loop: EventLoop,
        addressesPerUser: Int, staleness: StalenessPolicy, lagMax: TimeSpan,
        observer: ((RedisEvent) -> Void)?, latencyObserver: ((TimeSpan) -> Void)?
    ) {
        self.layout = layout
        self.loop = loop
        commands = LookUpCommands(layout)
        self.addressesPerUser = addressesPerUser
        self.staleness = staleness
        trust = TrustRule(lagMax: lagMax)
        client = RedisClient(configuration, on: loop)
        fuses = FuseWatch(client, layout: layout, on: loop)
        client.latencyObserver = latencyObserver
        client.observer = { [unowned self] event in
            observer?(event)
            connectionChanged(event)
        }
        link.reader = self
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

    func readNote(
        _ name: String, app: String, userID: String,
        _ done: @escaping (Result<String?, IndexFault>) -> Void
    ) {
        RedisQuestion.ask(client, ["GET", layout.note(name, of: userID, app: app)]) { reply in
            switch reply {
            case .success(let reply): done(.success(reply.text))
            case .failure(let error): done(.failure(.noAnswer("\(error)")))
            }
        }
    }

    func writeNote(
        _ name: String, _ text: String, app: String, userID: String, keptFor span: TimeSpan
    ) {
        let key = layout.note(name, of: userID, app: app)
        let millis = String(max(span.millis, 1))
        RedisQuestion.ask(client, ["SET", key, text, "PX", millis]) { _ in }
    }

    var trippedFuses: [FuseName: String] { fuses.tripped }

    func count(answers: Int, for name: FuseName) { fuses.count(answers: answers, for: name) }

    func stop() {
        fuses.stop()
        loop.cancel(refusalTimer)
        loop.cancel(surveyTimer)
        delegate = nil
        client.close()
        link.reader = nil
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
        let error = client.send(
            slot: commands.slot(of: bucket), to: self, tag: Self.tag(place, .addresses)
        ) { commands.append(user: lookUp.userID, app: lookUp.app, bucket, to: $0) }
        if error != nil {
            waiting.append(place)
            return
        }
        lookUp.askedAt = loop.now
        lookUp.openCommands = 1
        // Without its marker an answer is not believed: it is asked again.
        if !sendMarker(place) { lookUp.isCutOff = true }
    }

    private func sendMarker(_ place: Int) -> Bool {
        let lookUp = lookUps[place]
        let bucket = RedisLayout.bucket(of: lookUp.userID, app: lookUp.app)
        lookUp.isRedirected = false
        let error = client.send(
            slot: commands.slot(of: bucket), to: self, tag: Self.tag(place, .marker)
        ) { commands.append(marker: bucket, to: $0) }
        if error == nil { lookUp.openCommands += 1 }
        return error == nil
    }

    private func sendPage(_ place: Int, from cursor: String) -> Bool {
        let lookUp = lookUps[place]
        let key = layout.further(lookUp.userID, app: lookUp.app)
        let command = ["HSCAN", key, cursor, "COUNT", String(IndexLimits.entriesPerPage)]
        let error = client.send(command, key: key, to: self, tag: Self.tag(place, .page))
        if error == nil { lookUp.openCommands += 1 }
        return error == nil
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

    private static func tag(_ place: Int, _ question: Question) -> UInt64 {
        UInt64(place) << 2 | question.rawValue
    }

    private static func place(_ tag: UInt64) -> Int { Int(tag >> 2) }

    private static func question(_ tag: UInt64) -> Question {
        Question(rawValue: tag & 3) ?? .marker
    }
}

// MARK: - Answers

extension RedisIndexReader {
    func replied(_ reply: RedisReply, tag: UInt64) {
        let place = Self.place(tag)
        switch Self.question(tag) {
        case .addresses: collect(reply, place)
        case .page: turnPage(reply, place)
        case .marker:
            lookUps[place].isTrusted = trust.trusts(MarkerTrust(reply.bytes), at: loop.wall)
        }
        commandEnded(place, Self.question(tag))
    }

    func repliedInPart(_ reply: RedisReply, tag: UInt64) -> Bool {
        guard Self.question(tag) == .addresses else { return false }
        collect(reply, Self.place(tag))
        return true
    }

    func failed(_ error: RedisError, tag: UInt64) {
        let place = Self.place(tag)
        let question = Self.question(tag)
        switch error {
        // Of a user's hash it concerns that user; of a marker, the bucket.
        case .refused(let refusal) where refusal.kind == .wrongType && question != .marker:
            lookUps[place].fault = "\(refusal)"
        default:
            lookUps[place].isCutOff = true
        }
        commandEnded(place, question)
    }

    /// A marker that comes later than expected is as good.
    func redirected(tag: UInt64) {
        guard Self.question(tag) != .marker else { return }
        let lookUp = lookUps[Self.place(tag)]
        lookUp.isRedirected = true
        lookUp.wasRedirected = true
    }

    private func commandEnded(_ place: Int, _ question: Question) {
        let lookUp = lookUps[place]
        lookUp.openCommands -= 1
        guard lookUp.openCommands == 0 else { return }
        if lookUp.isCutOff { return finish(place) }
        let isSent: Bool
        switch (question, lookUp.cursor) {
        case (.page, let cursor?): isSent = sendPage(place, from: cursor)
        // The marker behind the last page, and behind a hash from another node than expected.
        case (.page, nil): isSent = sendMarker(place)
        case _ where lookUp.isRedirected: isSent = sendMarker(place)
        default: return finish(place)
        }
        if !isSent {
            lookUp.isCutOff = true
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

    private func turnPage(_ reply: RedisReply, _ place: Int) {
        let lookUp = lookUps[place]
        let parts = reply.elements
        lookUp.cursor = nil
        lookUp.isTrusted = false
        guard parts.count == 2, let cursor = parts[0].text else {
            lookUp.fault = "its further addresses are damaged"
            return
        }
        collect(parts[1], place)
        lookUp.cursor = cursor == "0" ? nil : cursor
    }

    private func take(
        _ id: UnsafeRawBufferPointer, _ value: UnsafeRawBufferPointer, _ lookUp: LookUp
    ) {
        if id.isEmpty {
            lookUp.cursor = "0"
            return
        }
        if id.count == 1, id[0] == 0x40 {
            lookUp.user = StoredUser.decode(value)
            if lookUp.user == nil { lookUp.fault = "the user's record is damaged" }
            return
        }
        guard let entry = UserEntry.decode(value) else {
            lookUp.fault = "an address in it is damaged"
            return
        }
        guard entry.standing.keepsAddress else { return }
        let isQuarantined = entry.standing == .quarantined
        guard
            let address = DeviceAddress(
                id: id, stored: entry.stored, isQuarantined: isQuarantined)
        else {
            lookUp.fault = "an address in it is damaged"
            return
        }
        // The entry itself says whose it is, whatever key it was found under.
        guard address.belongs(to: lookUp.userID) else {
            lookUp.fault = "an address in it belongs to another user"
            return
        }
        guard !staleness.isStale(address, at: loop.wall) else { return }
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
        if lookUp.fault == nil, let cursor = lookUp.cursor {
            if sendPage(place, from: cursor) { return }
            lookUp.isCutOff = true
            return finish(place)
        }
        if isDoubtful(lookUp) {
            doubtful.append(place)
            if surveysOpen == 0 { survey() }
            return
        }
        deliver(place)
    }

    /// While a slot moves, a node says of a key it does not have that the next one may have it. If
    /// it was emptied, that is true of everything; and the bucket's marker may have moved before.
    /// An empty answer is believed once markers read after it show that no node lost any.
    private func isDoubtful(_ lookUp: LookUp) -> Bool {
        lookUp.wasRedirected && lookUp.found.isEmpty && lookUp.fault == nil
    }

    private func deliver(_ place: Int) {
        let lookUp = lookUps[place]
        let (tag, askedAt) = (lookUp.tag, lookUp.askedAt)
        let result: LookUpResult
        if let fault = lookUp.fault {
            result = .unavailable(.unreadable(fault))
        } else {
            let addresses = lookUp.found.finish()
            result = .addresses(
                addresses, dropped: lookUp.found.dropped, at: askedAt, user: lookUp.user)
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
        case .ready:
            trust.connectionEnded()
            survey()
            fuses.connected()
        case .lost(let error), .attemptFailed(let error):
            readiness = .disconnected("\(error)")
            // Some nodes of a cluster may serve on.
            if client.isUsable { surveySoon() } else { loop.cancel(surveyTimer) }
        }
    }

    private func becomeIncomplete() {
        if readiness == .ready { readiness = .incomplete("a bucket is not up to date") }
        surveySoon()
    }

    private func surveySoon() {
        if !surveyTimer.isScheduled {
            loop.schedule(surveyTimer, at: loop.now + IndexLimits.readinessInterval)
        }
    }

    private func survey() {
        guard client.isUsable else { return }
        surveysOpen += 1
        let doubts = doubtful
        doubtful = []
        MarkerSurvey.start(client, layout) { [link] markers, error in
            link.reader?.surveyed(markers, error, doubts)
        }
    }

    private func surveyed(_ markers: [MarkerTrust?], _ error: RedisError?, _ doubts: [Int]) {
        surveysOpen -= 1
        guard client.isUsable else {
            for place in doubts { askAgain(place) }
            return
        }
        trust.surveyed(markers)
        let isTrusted = markers.map { trust.trusts($0, at: loop.wall) }
        let count = isTrusted.count { $0 }
        if count == markers.count {
            readiness = .ready
        } else {
            // While a node is missing, why it is was said already.
            if let error, error != .notConnected {
                readiness = .disconnected("\(error)")
            } else if client.isReady {
                readiness = .incomplete(obstacle(markers, trusted: count))
            }
            surveySoon()
        }
        for place in doubts {
            if count == markers.count { deliver(place) } else { askAgain(place) }
        }
        sendWaiting { isTrusted[RedisLayout.bucket(of: $0.userID, app: $0.app)] }
        if !doubtful.isEmpty && surveysOpen == 0 { survey() }
    }

    /// Puts a look-up's answer aside; it is asked again when there is reason to believe the next.
    private func askAgain(_ place: Int) {
        lookUps[place].forgetAnswer(limit: addressesPerUser)
        waiting.append(place)
    }

    private func obstacle(_ markers: [MarkerTrust?], trusted: Int) -> String {
        let filled = markers.count { $0 != nil }
        if filled < markers.count { return "\(filled) of \(markers.count) buckets are filled" }
        let lagging = markers.count { trust.lags($0, at: loop.wall) }
        if lagging > 0 {
            return TrustRule.lagText(trust.lagMax)
        }
        return "\(trusted) of \(markers.count) buckets were renewed since the connection came back"
    }
}
