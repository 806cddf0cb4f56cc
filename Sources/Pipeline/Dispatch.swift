// Dispatch: requests go to the pools, answers come back, and a verdict decides: settled, or tried
// again in place while that makes sense.

internal import Base
internal import EventLoop
internal import Gateways
internal import HTTP2
internal import Routes
internal import Telemetry
internal import TokenIndex

extension Lane {
    /// Sends a target, after a new look-up if the last one is too old.
    func send(_ target: TargetInFlight) {
        guard let event = target.event, let envelope = event.envelope,
            let bulkhead = target.bulkhead
        else { return }
        send(target, of: event, envelope, bulkhead)
    }

    /// As `send`, for a caller who knows what belongs to the target.
    func send(
        _ target: TargetInFlight, of event: EventInFlight, _ envelope: EventEnvelope,
        _ bulkhead: Bulkhead
    ) {
        if event.isOver { return letGo(target) }
        if envelope.expiresAt <= loop.wall {
            return settle(target, Settlement(outcome: .expired))
        }
        // Its push service was idle while it waited, and is opened anew.
        if bulkhead.isDropped { return start(target) }
        if !levers.isIdle, !passesLevers(target, of: event, envelope, bulkhead) { return }
        if let line = event.line, !hasTurn(target, in: line) { return }
        if loop.now - target.lookedUpAt > settings.lookUpAge { return refresh(target) }
        guard let request = target.request else {
            preconditionFailure("a target is sent whose request is still out")
        }
        if !throttles.isEmpty, waitsForToken(target, envelope) { return }
        guard takesRoom(target, bulkhead) else { return }
        switch render(target, of: event, bulkhead, into: request) {
        case .awaitsToken:
            leaveRoom(target)
            awaitToken(target)
        case .settled(let settlement):
            leaveRoom(target)
            settle(target, settlement)
        case .request where envelope.isValidation && bulkhead.gateway != .fcm:
            // Only FCM has a rehearsal: the request was built and checked, and goes nowhere.
            leaveRoom(target)
            settle(target, Settlement(outcome: .accepted, detail: "validated, not sent"))
        case .request:
            target.request = nil
            target.mayBeWritten = false
            target.withdrawal = nil
            target.waitsForTokenSince = nil
            target.credentialEpoch = bulkhead.credentialEpoch
            let patience = min(envelope.expiresAt - loop.wall, settings.streamPatience)
            bulkhead.budget.took()
            bulkhead.pace.used(at: loop.now)
            if bulkhead.gateway == .expo, case .expo(let gateway) = bulkhead.sender {
                return gateway.add(target, request)
            }
            bulkhead.pool.submit(
                request, tag: UInt64(target.slot), deadline: loop.now + patience,
                isUrgent: event.eventClass == .critical)
        }
    }

    /// Whether a target has to wait because its token is throttled; then it was seen to.
    private func waitsForToken(_ target: TargetInFlight, _ envelope: EventEnvelope) -> Bool {
        guard let address = target.address, let wait = throttles.wait(address, at: loop.now) else {
            return false
        }
        let settlement = Settlement(
            outcome: envelope.isOneAttempt ? .failed : .expired, reason: .throttled,
            detail: "its token is throttled by the gateway")
        if envelope.isOneAttempt || loop.wall + wait >= envelope.expiresAt {
            settle(target, settlement)
        } else if wait <= settings.retry.longestWait {
            wake(target, after: wait)
        } else {
            postpone(target, for: wait, otherwise: settlement)
        }
        return true
    }

    /// Waits for an access token, but not for ever: a token endpoint that is down must not fill
    /// the lane with events of one project.
    private func awaitToken(_ target: TargetInFlight) {
        let since = target.waitsForTokenSince ?? loop.now
        target.waitsForTokenSince = since
        guard loop.now - since < settings.streamPatience else {
            target.waitsForTokenSince = nil
            return postponeUntried(
                target,
                otherwise: Settlement(
                    outcome: .failed, reason: .credentialUnavailable,
                    detail: "no access token was to be had in time"))
        }
        awaitingToken.append(target)
    }

    /// Sends what waited for an access token.
    func resumeAwaitingToken() {
        guard !awaitingToken.isEmpty else { return }
        let waiting = awaitingToken
        awaitingToken.removeAll(keepingCapacity: true)
        for target in waiting { send(target) }
        flushAtEndOfTurn()
    }
}

extension Lane: HTTP2PoolDelegate {
    /// The last look before HEADERS are written: nobody else's push or partition, nothing expired.
    func pool(_ pool: HTTP2Pool, mayWrite tag: UInt64) -> Bool { mayWrite(targets[Int(tag)]) }

    /// The same for a target; what stands in its way is left with it.
    func mayWrite(_ target: TargetInFlight) -> Bool {
        guard let event = target.event, let envelope = event.envelope else { return false }
        if event.isOver {
            target.withdrawal = .lost
            return false
        }
        if envelope.expiresAt <= loop.wall {
            target.withdrawal = .expired
            return false
        }
        if !levers.isIdle, !isWanted(target, of: event, envelope) {
            target.withdrawal = .unwanted
            return false
        }
        if loop.now - target.lookedUpAt > settings.lookUpAge {
            target.withdrawal = .staleLookUp
            return false
        }
        target.mayBeWritten = true
        return true
    }

    func pool(
        _ pool: HTTP2Pool, finished tag: UInt64, _ request: OutboundRequest, _ result: HTTPResult
    ) {
        let target = targets[Int(tag)]
        target.request = request
        flushAtEndOfTurn()
        if let bulkhead = target.bulkhead { learn(from: result, target, bulkhead) }
        switch result {
        case .response(let response): answered(target, response)
        case .withdrawn: withdrawn(target)
        case .notProcessed(let fault): notProcessed(target, fault)
        case .ambiguous(let fault, let sentAt): lostAnswer(target, fault, sentAt: sentAt)
        }
    }

    /// What a result says about the gateway, whatever it says about the target.
    private func learn(from result: HTTPResult, _ target: TargetInFlight, _ bulkhead: Bulkhead) {
        switch result {
        case .response(let response):
            let status = response.status
            // 429 may be about one token alone: see `follow`.
            if status == 503 { bulkhead.budget.lower(at: loop.now) }
            if status < 300 { bulkhead.rest.accepted() }
            if status >= 500 {
                gatewayFailed(target, bulkhead)
            } else {
                gatewayWorked(target, bulkhead)
            }
            gaveRoom(target, bulkhead, isGood: status < 300)
        case .withdrawn:
            leaveRoom(target)
            gaveRoom(target, bulkhead, isGood: false)
        case .notProcessed(let fault), .ambiguous(let fault, _):
            if fault == .timedOut { bulkhead.budget.lower(at: loop.now) }
            if fault.isOfRequest {
                leaveRoom(target)
            } else {
                gatewayFailed(target, bulkhead)
            }
            gaveRoom(target, bulkhead, isGood: false)
        }
    }

    func poolAlarm(_ pool: HTTP2Pool, _ alarm: PoolAlarm) {
        let isPushService = apps.contains { app in
            app.bulkheads.contains { $0.service != nil && $0.pool === pool }
        }
        alarms.pool(pool.origin, alarm, isPushService: isPushService)
    }

    private func withdrawn(_ target: TargetInFlight) {
        switch target.withdrawal {
        case .staleLookUp: refresh(target)
        case .unwanted: send(target)
        case .lost: letGo(target)
        case .expired, nil: settle(target, Settlement(outcome: .expired))
        }
    }

    // MARK: Answers

    private func answered(_ target: TargetInFlight, _ response: HTTPResponse) {
        guard let bulkhead = target.bulkhead, let address = target.address else { return }
        let sentAt = wall(at: response.sentAt)
        noteAttempt(target, sentAt: sentAt)
        target.gatewayTime = loop.now - response.sentAt
        bulkhead.metrics.answered(status: response.status, after: target.gatewayTime)
        bulkhead.pace.answered(after: target.gatewayTime, at: loop.now)
        bulkhead.answersUncounted += 1
        if bulkhead.gateway != .apns { noteClock(response, bulkhead) }
        if response.status == 200, bulkhead.gateway == .apns {
            // What nearly every answer is, and all that it says.
            noteIDs(target, response, messageID: nil)
            return settle(target, Settlement(outcome: .accepted, status: 200))
        }
        var answer = GatewayAnswer(
            status: response.status, body: response.body,
            retryAfter: response.status == 200 ? nil : response.text(.retryAfter),
            date: response.status == 200 ? nil : response.text(.date), now: loop.wall)
        let sent = SentRequest(
            sentAt: sentAt, registeredAt: address.registeredAt,
            credentialAge: response.sentAt - target.credentialBorn, attempts: target.attempts,
            refreshTried: target.refreshTried)
        let verdict: Verdict
        switch bulkhead.gateway {
        case .apns where target.event?.envelope?.isBroadcast == true:
            verdict = APNsBroadcastVerdict.judge(answer, sent: sent, parser: answerParser)
        case .apns: verdict = APNsVerdict.judge(answer, sent: sent, parser: answerParser)
        case .webpush:
            answer.note = windowsWords(in: response)
            verdict = WebPushVerdict.judge(
                answer, of: bulkhead.service?.family ?? .other, sent: sent, parser: answerParser)
        default: verdict = FCMVerdict.judge(answer, sent: sent, parser: answerParser)
        }
        noteIDs(target, response, messageID: verdict.gatewayID)
        let isBroadcast = target.event?.envelope?.isBroadcast ?? false
        follow(isBroadcast ? verdict.aboutNoToken : verdict, target, status: response.status)
    }

    /// What Windows says of a push, which it does in header fields alone; nil when it says nothing.
    private func windowsWords(in response: HTTPResponse) -> String? {
        guard response.status >= 300 else { return nil }
        var words = response.text(.wnsError).map { [$0] } ?? []
        if let status = response.text(.wnsStatus) { words.append("status \(status)") }
        if let status = response.text(.wnsNotificationStatus) {
            words.append("notification \(status)")
        }
        return words.isEmpty ? nil : words.joined(separator: "; ")
    }

    /// Compares the time that an answer tells with this machine's, now and then.
    func noteClock(_ response: HTTPResponse, _ bulkhead: Bulkhead) {
        guard bulkhead.isClockDue(at: loop.now), let date = response.text(.date) else { return }
        let answer = GatewayAnswer(
            status: response.status, body: response.body, date: date, now: loop.wall)
        guard let ahead = answer.clockAhead else { return }
        builder.plan.clock.note(
            ahead, of: bulkhead.gateway, after: loop.now - response.sentAt)
    }

    private func noteIDs(
        _ target: TargetInFlight, _ response: HTTPResponse, messageID: Range<Int>?
    ) {
        target.gatewayID.removeAll()
        target.gatewayTraceID.removeAll()
        if let range = messageID {
            target.gatewayID.append(UnsafeRawBufferPointer(rebasing: response.body[range]))
        } else if let id = response.header(.apnsID) ?? response.header(.apnsRequestID) {
            target.gatewayID.append(id)
        }
        if let id = response.header(.apnsUniqueID) { target.gatewayTraceID.append(id) }
    }

    /// Attempts are counted when they end: what was provably not processed is none.
    func noteAttempt(_ target: TargetInFlight, sentAt: UnixMillis) {
        target.attempts += 1
        if target.firstSentAt == nil { target.firstSentAt = sentAt }
        target.sentAt = sentAt
    }

    /// The wall-clock time of a moment of this loop's recent past.
    func wall(at time: MonotonicTime) -> UnixMillis {
        UnixMillis(loop.wall.value - (loop.now - time).millis)
    }

    func follow(_ verdict: Verdict, _ target: TargetInFlight, status: Int) {
        // A credential that was replaced may be revoked; its successor was found good. Nothing was
        // delivered, so nothing is repeated.
        if isAboutFormerCredential(verdict, target) { return wake(target, after: .zero) }
        if takesOtherKey(verdict, target) { return wake(target, after: .zero) }
        alarms.verdict(verdict, target.bulkhead)
        if verdict.drainsConnection { replaceConnections(of: target) }
        var settlement = Settlement(
            outcome: .failed, reason: verdict.reason, detail: verdict.detail, status: status,
            tokenAction: verdict.tokenAction, gatewayTime: verdict.gatewayTime,
            countsForFuse: verdict.countsForFuse)
        switch verdict.course {
        case .final(.rejected) where verdict.reason == .localPayloadTooLarge && shrinks(target):
            wake(target, after: .zero)
        case .final(let outcome):
            settlement.outcome = outcome
            settle(target, settlement)
        case .retry(let advice):
            settlement.outcome = advice.exhausted
            if advice.scope == .token, let address = target.address {
                throttles.hold(
                    address, until: loop.now + advice.minimumWait, at: loop.now)
            } else if status == 429 {
                target.bulkhead?.budget.lower(at: loop.now)
            }
            if advice.scope == .connection {
                return restTogether(target, advice, otherwise: settlement)
            }
            if advice.scope == .project || advice.scope == .perhapsProject {
                target.bulkhead?.rest.throttled(
                    for: advice.minimumWait, isProject: advice.scope == .project, at: loop.now)
            }
            if advice.needsNewConnection { replaceConnections(of: target) }
            if advice.needsFreshCredential { takeFreshCredential(for: target) }
            retry(
                target, after: advice.minimumWait, isOpenToAll: advice.mendsAtOnce,
                otherwise: settlement)
        }
    }

    /// Waits with all others of the bulkhead: APNs thinks that this sender has had too many provider
    /// tokens and takes none of its pushes, for minutes or for hours. No push is at fault, so none
    /// loses an attempt by it; those that are not out yet are parked meanwhile.
    private func restTogether(
        _ target: TargetInFlight, _ advice: RetryAdvice, otherwise settlement: Settlement
    ) {
        let rest = settings.tokenUpdatesWait
        target.bulkhead?.rest.throttled(for: rest, isProject: true, at: loop.now)
        // If it lasts, it may be this connection's count.
        if advice.needsNewConnection || target.waits > 0 { replaceConnections(of: target) }
        if target.event?.envelope?.isOneAttempt == false { target.attempts -= 1 }
        target.waits += 1
        // Not all in one moment: the first of them shows whether it is over.
        let wait = rest + loop.random.span(upTo: rest / 4)
        postpone(target, for: wait, otherwise: settlement)
    }

    /// Whether a credential is refused that another one has replaced since the request was built.
    private func isAboutFormerCredential(_ verdict: Verdict, _ target: TargetInFlight) -> Bool {
        guard let bulkhead = target.bulkhead, target.credentialEpoch != bulkhead.credentialEpoch
        else { return false }
        switch verdict.course {
        case .final(let outcome): return outcome == .credentialError
        case .retry(let advice): return advice.exhausted == .credentialError
        }
    }

    /// Whether a message that a browser's road has no room for goes out again with less text.
    /// Nothing was delivered, so nothing is repeated.
    private func shrinks(_ target: TargetInFlight) -> Bool {
        let excess = target.payloadBytes - WebPushLimits.bridgedBytes
        guard target.bulkhead?.gateway == .webpush, excess > 0,
            target.attempts < settings.retry.attempts,
            target.event?.routed?.route.shrinksBody == true
        else { return false }
        target.excessBytes += excess
        return true
    }

    private func takeFreshCredential(for target: TargetInFlight) {
        target.refreshTried = true
        target.bulkhead?.forgetProviderToken()
        switch target.bulkhead?.sender {
        case .apns(_, let credential):
            // The result is not needed here: rendering asks for the current token.
            _ = try? credential.token(
                insteadOf: target.credentialGeneration, at: loop.now, wall: loop.wall)
        // A certificate is replaced by hand.
        case .certificateAPNs: break
        case .fcm(_, let tokens): tokens.refuse(target.credentialGeneration)
        // An access token is refused for good; a new one comes with a new configuration.
        case .expo: break
        case .webpush(let sender):
            sender.credential.refuse(target.credentialGeneration, at: loop.now)
        case nil: break
        }
    }

    /// New connections on a gateway's word, at most once in a while: a burst of equal answers
    /// must not become a burst of handshakes.
    private func replaceConnections(of target: TargetInFlight) {
        guard let bulkhead = target.bulkhead,
            loop.now - bulkhead.replacedAt > settings.replaceInterval
        else { return }
        bulkhead.replacedAt = loop.now
        bulkhead.pool.replaceConnections()
    }

    // MARK: No answers

    func notProcessed(_ target: TargetInFlight, _ fault: TransportFault) {
        guard let envelope = target.event?.envelope else { return }
        target.bulkhead?.metrics.unanswered.add(1)
        if envelope.expiresAt <= loop.wall {
            return settle(target, Settlement(outcome: .expired))
        }
        if fault == .forbiddenAddress {
            return settle(
                target,
                Settlement(
                    outcome: .rejected, reason: .endpointForbidden,
                    detail: "the endpoint's host has no public address"))
        }
        if fault.isOfRequest {
            return settle(
                target,
                Settlement(outcome: .rejected, reason: .invalidContent, detail: "\(fault)"))
        }
        if let bulkhead = target.bulkhead, !bulkhead.breaker.isClosed {
            return park(target, bulkhead, reason: .gatewayUnavailable)
        }
        postponeUntried(
            target,
            otherwise: Settlement(
                outcome: .failed, reason: .connectionFailed, detail: "\(fault)"))
    }

    /// The gateway may have processed the request. It is sent once more with the same identity,
    /// under which a second copy replaces the first, unless the route prefers none to two.
    func lostAnswer(
        _ target: TargetInFlight, _ fault: TransportFault, sentAt: MonotonicTime
    ) {
        target.bulkhead?.metrics.unanswered.add(1)
        noteAttempt(target, sentAt: wall(at: sentAt))
        target.gatewayTime = loop.now - sentAt
        let wasAmbiguous = target.wasAmbiguous
        target.wasAmbiguous = true
        let reason: Reason = fault == .timedOut ? .answerTimeout : .connectionLost
        var settlement = Settlement(outcome: .failed, reason: reason, detail: "\(fault)")
        if target.event?.routed?.route.avoidsDuplicates == true {
            settlement.outcome = .unknown
            return settle(target, settlement)
        }
        if wasAmbiguous { return settle(target, settlement) }
        // FCM: never sooner than ten seconds after a failure.
        let minimum = target.bulkhead?.gateway == .fcm ? settings.fcmFailureWait : .zero
        retry(target, after: minimum, otherwise: settlement)
    }

    // MARK: Retries

    /// Tries again, also what may be sent only once if it `isOpenToAll`.
    private func retry(
        _ target: TargetInFlight, after minimumWait: TimeSpan, isOpenToAll: Bool = false,
        otherwise settlement: Settlement
    ) {
        guard let envelope = target.event?.envelope else { return }
        let decision = settings.retry.decide(
            minimumWait: minimumWait, attempts: target.attempts,
            isOneAttempt: envelope.isOneAttempt && !isOpenToAll, now: loop.wall,
            expiresAt: envelope.expiresAt,
            random: &loop.random)
        switch decision {
        case .exhausted: settle(target, settlement)
        case .expires:
            var settlement = settlement
            settlement.outcome = .expired
            settle(target, settlement)
        case .wait(let span):
            target.bulkhead?.metrics.retries.add(1)
            if span > settings.retry.longestWait {
                postpone(target, for: span, otherwise: settlement)
            } else {
                wake(target, after: span)
            }
        }
    }
}
