// One service on its listener: reads each request, asks the fault plan and the service's rules,
// writes the journal and answers. Loop-confined.

internal import Base
internal import EventLoop
internal import HTTP2

/// Serves one simulated service.
final class GatewayServer {
    /// How the service treats its connections.
    struct Manners {
        var streamLimit: UInt32 = 1000
        /// APNs: one stream until a provider token was accepted.
        var hasGate = false
        /// APNs was seen to lower the limit to 1 with a rejection, until the next success.
        var lowersLimitOnRejection = false
        /// Google closes connections that are pinged while idle.
        var refusesIdlePings = false
        var idleTimeout: TimeSpan?
    }

    let service: SimulatedService
    private(set) var listener: HTTP2Listener?

    private let judge: any Judge
    private let loop: EventLoop
    private let manners: Manners
    private let engine: FaultEngine
    private let journal: Journal
    private var timers: [Int: LoopTimer] = [:]
    private var timersMade = 0
    private let date = DateField()
    private lazy var idleTimer = LoopTimer { [unowned self] in closeIdle() }

    init(
        service: SimulatedService, judge: any Judge, loop: EventLoop, manners: Manners,
        engine: FaultEngine, journal: Journal
    ) {
        self.service = service
        self.judge = judge
        self.loop = loop
        self.manners = manners
        self.engine = engine
        self.journal = journal
    }

    func listen(
        host: String, port: UInt16, certificatePEM: String, keyPEM: String,
        clientAuthorityPEM: String?
    ) throws(ListenError) -> UInt16 {
        var options = ServerOptions()
        options.maxConcurrentStreams = manners.hasGate ? 1 : manners.streamLimit
        let listener = try HTTP2Listener(
            loop: loop, host: host, port: port, certificatePEM: certificatePEM, keyPEM: keyPEM,
            clientAuthorityPEM: clientAuthorityPEM, options: options, delegate: self)
        listener.acceptance = { [unowned self] number in
            journal.update { $0.connectionsAccepted[service, default: 0] += 1 }
            return engine.acceptance(service, connection: number, at: loop.now)
        }
        self.listener = listener
        scheduleIdleCheck()
        return listener.port
    }

    func close() {
        loop.cancel(idleTimer)
        for timer in timers.values { loop.cancel(timer) }
        timers.removeAll()
        listener?.close()
        listener = nil
    }
}

extension GatewayServer: ServerConnectionDelegate {
    func opened(_ connection: ServerConnection) {
        switch service {
        case .apnsProduction, .apnsSandbox, .apnsChannels, .apnsChannelsSandbox:
            let state = APNsConnectionState()
            connection.state = state
            if connection.clientCertificate != nil, manners.hasGate {
                // One stream at a time is for those who still have to show a provider token.
                state.isGateOpen = true
                connection.change(SettingsChange(maxConcurrentStreams: manners.streamLimit))
            }
        case .fcm, .oauth: connection.state = FCMConnectionState()
        case .webpush: connection.state = WebPushConnectionState()
        case .expo: connection.state = ExpoConnectionState()
        }
        journal.update { $0.connectionsOpened[service, default: 0] += 1 }
    }

    func closed(_ connection: ServerConnection) {
        journal.update { $0.connectionsClosed[service, default: 0] += 1 }
    }

    func received(_ request: ServerRequest, on connection: ServerConnection) {
        var subject = judge.read(request, on: connection)
        let faults = engine.faults(
            for: FaultSubject(
                service: service, token: subject.token, connection: connection.number,
                connectionRequest: connection.requestsReceived, at: loop.now))
        if let effect = faults.decisive, !effect.isProcessed {
            record(request, subject, nil, .notProcessed, connection)
            disturb(effect, request.stream, connection, faults.delay)
        } else {
            var judgement = judge.judge(request, subject, on: connection)
            if case .answer(let answer)? = faults.decisive {
                judgement = judge.answer(answer, subject, at: loop.wall)
            }
            subject.authorization = authorization(of: connection)
            let isAnswered = faults.decisive?.leavesAnswer ?? true
            record(request, subject, judgement, isAnswered ? .answered : .unanswered, connection)
            if isAnswered {
                tellTime(in: &judgement.response)
                connection.respond(judgement.response, on: request.stream, after: faults.delay)
                adjustLimit(connection, judgement)
            } else if let effect = faults.decisive {
                disturb(effect, request.stream, connection, faults.delay)
            }
        }
        for effect in faults.onConnection { apply(effect, connection, request.stream) }
    }

    /// APNs tells none.
    private func tellTime(in response: inout ServerResponse) {
        guard service.gateway != .apns, !response.fields.contains(where: { $0.name == "date" })
        else { return }
        response.fields.append(date.value(at: loop.wall))
    }

    func noticed(_ event: ServerEvent, on connection: ServerConnection) {
        switch event {
        case .streamLimitViolated: violated("more streams than the limit")
        case .streamRefused where connection.settingsAcknowledged == 0:
            violated("streams before the first SETTINGS were acknowledged")
        case .protocolViolated(let words): violated(words)
        case .priorityReceived where service.gateway == .apns: violated("PRIORITY frame")
        case .requestAfterGoAway: advised("request after GOAWAY")
        case .streamReset(_, let code): advised("stream reset by the client with code \(code)")
        case .pingReceived(let openStreams): pinged(connection, openStreams)
        default: break
        }
    }

    private func violated(_ words: String) {
        journal.update { $0.violations["\(service.rawValue): \(words)", default: 0] += 1 }
    }

    private func advised(_ words: String) {
        journal.update { $0.advisories["\(service.rawValue): \(words)", default: 0] += 1 }
    }

    private func pinged(_ connection: ServerConnection, _ openStreams: Int) {
        journal.update { $0.pings[service, default: 0] += 1 }
        guard manners.refusesIdlePings, openStreams == 0,
            let state = connection.state as? FCMConnectionState
        else { return }
        state.idlePings += 1
        guard state.idlePings > Limits.fcmIdlePings else { return }
        violated("PING while idle")
        connection.goAway(
            lastStream: connection.highestStream, code: ErrorCode.enhanceYourCalm.value,
            debug: "too_many_pings")
        connection.close()
    }
}

// What follows an answer.
extension GatewayServer {
    private func authorization(of connection: ServerConnection) -> String {
        if let state = connection.state as? APNsConnectionState { return state.last.digest }
        if let state = connection.state as? WebPushConnectionState { return state.last.digest }
        if let state = connection.state as? ExpoConnectionState { return state.last.digest }
        return (connection.state as? FCMConnectionState)?.last.digest ?? ""
    }

    /// Opens the gate with the first accepted provider token, and lowers or restores the limit
    /// where that was asked for.
    private func adjustLimit(_ connection: ServerConnection, _ judgement: Judgement) {
        guard let state = connection.state as? APNsConnectionState else { return }
        let refusesToken =
            judgement.response.status == 403
            || judgement.reason == APNsReason.tooManyProviderTokenUpdates.rawValue
        let isRejection = (400..<500).contains(judgement.response.status)
        if manners.lowersLimitOnRejection, isRejection {
            guard !state.isLimitLowered, state.isGateOpen || !manners.hasGate else { return }
            state.isLimitLowered = true
            connection.change(SettingsChange(maxConcurrentStreams: 1))
        } else if state.isLimitLowered, judgement.isSuccess {
            state.isLimitLowered = false
            connection.change(SettingsChange(maxConcurrentStreams: manners.streamLimit))
        } else if manners.hasGate, !state.isGateOpen, !refusesToken {
            state.isGateOpen = true
            connection.change(SettingsChange(maxConcurrentStreams: manners.streamLimit))
        }
    }

    private func record(
        _ request: ServerRequest, _ subject: RequestSubject, _ judgement: Judgement?,
        _ fate: RequestFate, _ connection: ServerConnection
    ) {
        if let advisory = judgement?.advisory { advised(advisory) }
        if subject.isBookkeeping { return journal.update { $0.receiptRequests += 1 } }
        if !subject.parts.isEmpty {
            return recordParts(request, subject, judgement, fate, connection)
        }
        let indexing =
            journal.keepsEntries
            ? request.fields.filter(\.neverIndexed).map { request.name(of: $0).text } : []
        journal.record(
            JournalEntry(
                service: service, token: subject.token, messageID: subject.messageID,
                apnsID: service.gateway == .apns ? subject.requestID : nil,
                collapseID: subject.collapseID, priority: subject.priority,
                expiration: subject.expiration, topic: subject.topic,
                authorization: subject.authorization, neverIndexed: indexing,
                connection: connection.number, stream: request.stream, at: loop.wall,
                status: judgement?.response.status ?? 0, reason: judgement?.reason ?? "",
                fate: fate, body: journal.keepsBodies ? request.body.array : []))
    }

    /// One entry for each message of a request; the first has the body of all.
    private func recordParts(
        _ request: ServerRequest, _ subject: RequestSubject, _ judgement: Judgement?,
        _ fate: RequestFate, _ connection: ServerConnection
    ) {
        for (index, part) in subject.parts.enumerated() {
            let reasons = judgement?.partReasons ?? []
            journal.record(
                JournalEntry(
                    service: service, token: part.token, messageID: part.messageID, apnsID: nil,
                    collapseID: part.collapseID, priority: part.priority,
                    expiration: part.expiration, topic: subject.topic,
                    authorization: subject.authorization, neverIndexed: [],
                    connection: connection.number, stream: request.stream, at: loop.wall,
                    status: judgement?.response.status ?? 0,
                    reason: index < reasons.count ? reasons[index] : judgement?.reason ?? "",
                    fate: fate,
                    body: journal.keepsBodies && index == 0 ? request.body.array : []))
        }
    }

    /// What happens instead of an answer.
    private func disturb(
        _ effect: FaultEffect, _ stream: Int32, _ connection: ServerConnection, _ delay: TimeSpan
    ) {
        switch effect {
        case .refuse: connection.reset(stream, codes: [ErrorCode.refusedStream.value], after: delay)
        case .reset(let codes, _): connection.reset(stream, codes: codes, after: delay)
        case .playDead(_, let readingOn): connection.playDead(readingOn: readingOn)
        case .cut:
            later(delay) { connection.cut() }
        default: break
        }
    }

    private func apply(_ effect: FaultEffect, _ connection: ServerConnection, _ stream: Int32) {
        switch effect {
        case .goAway(let goAway):
            if goAway.isGraceful { connection.goAway() }
            let last =
                switch goAway.lastStream {
                case .current: stream
                case .highest: connection.highestStream
                case .stream(let number): number
                }
            connection.goAway(lastStream: last, code: goAway.code, debug: goAway.debug)
            if let span = goAway.closeAfter { later(span) { connection.close() } }
        case .changeSettings(let change): connection.change(change)
        case .withholdWindowUpdates(let span):
            connection.withholdWindowUpdates(true)
            later(span) { connection.withholdWindowUpdates(false) }
        case .ignorePings: connection.ignorePings(true)
        default: break
        }
    }

    private func later(_ delay: TimeSpan, _ action: @escaping () -> Void) {
        guard delay > .zero else { return action() }
        timersMade += 1
        let number = timersMade
        let timer = LoopTimer { [unowned self] in
            timers[number] = nil
            action()
        }
        timers[number] = timer
        loop.schedule(timer, at: loop.now + delay)
    }

    private func scheduleIdleCheck() {
        guard let timeout = manners.idleTimeout else { return }
        loop.schedule(idleTimer, at: loop.now + timeout / 8)
    }

    private func closeIdle() {
        guard let timeout = manners.idleTimeout, let listener else { return }
        for connection in listener.connections.values
        where connection.openStreams == 0 && loop.now - connection.lastRequestAt >= timeout {
            connection.goAway(lastStream: connection.highestStream, debug: "session_timed_out")
            connection.close()
        }
        scheduleIdleCheck()
    }
}

extension FaultEffect {
    /// Whether the service processes the request before the effect strikes.
    fileprivate var isProcessed: Bool {
        switch self {
        case .refuse: false
        case .reset(_, let processed), .withholdAnswer(let processed),
            .playDead(let processed, _), .cut(let processed):
            processed
        default: true
        }
    }

    /// Whether the request is still answered.
    fileprivate var leavesAnswer: Bool {
        switch self {
        case .refuse, .reset, .withholdAnswer, .playDead, .cut: false
        default: true
        }
    }
}
