// What the answer to a request of many messages means for each of them.

internal import Base
internal import EventLoop
internal import Gateways
internal import HTTP2
internal import TokenIndex

extension Lane {
    /// Builds the message of a target; it becomes part of a request later.
    func renderExpo(
        _ content: PushContent, to target: TargetInFlight, at address: DeviceAddress,
        with gateway: ExpoGateway, into request: OutboundRequest
    ) -> RenderedTarget {
        request.reset()
        let rendering = address.withToken { bytes in
            gateway.renderer.render(
                content, to: pushTarget(address, .alert, bytes), into: request.body)
        }
        return rendered(rendering, target, request)
    }

    /// A request came back, answered or not.
    func finished(_ batch: ExpoBatch, of gateway: ExpoGateway, _ result: HTTPResult) {
        flushAtEndOfTurn()
        guard let first = batch.entries.first?.target, let bulkhead = first.bulkhead else { return }
        learn(from: result, batch, first, bulkhead)
        switch result {
        case .response(let response): answered(batch, of: gateway, response, bulkhead)
        case .withdrawn:
            gateway.giveBack(batch)
            withdrawn(batch, of: gateway, bulkhead)
        case .notProcessed(let fault):
            gateway.giveBack(batch)
            for entry in batch.entries {
                gaveRoom(entry.target, bulkhead, isGood: false)
                notProcessed(entry.target, fault)
            }
        case .ambiguous(let fault, let sentAt):
            for entry in batch.entries {
                gaveRoom(entry.target, bulkhead, isGood: false)
                lostAnswer(entry.target, fault, sentAt: sentAt)
            }
        }
    }

    /// However many messages a request has, it says one thing about the gateway.
    private func learn(
        from result: HTTPResult, _ batch: ExpoBatch, _ first: TargetInFlight, _ bulkhead: Bulkhead
    ) {
        switch result {
        case .response(let response):
            let status = response.status
            if status == 429 || status == 503 { bulkhead.budget.lower(at: loop.now) }
            if status >= 500 {
                gatewayFailed(first, bulkhead)
            } else {
                gatewayWorked(first, bulkhead)
            }
        case .withdrawn: for entry in batch.entries { leaveRoom(entry.target) }
        case .notProcessed(let fault), .ambiguous(let fault, _):
            if fault == .timedOut { bulkhead.budget.lower(at: loop.now) }
            if fault.isOfRequest {
                for entry in batch.entries { leaveRoom(entry.target) }
            } else {
                gatewayFailed(first, bulkhead)
            }
        }
        for entry in batch.entries { entry.target.isProbe = false }
    }

    private func withdrawn(_ batch: ExpoBatch, of gateway: ExpoGateway, _ bulkhead: Bulkhead) {
        var kept: [ExpoBatch.Entry] = []
        for entry in batch.entries {
            guard let withdrawal = entry.target.withdrawal else {
                entry.target.request = nil
                kept.append(entry)
                continue
            }
            gaveRoom(entry.target, bulkhead, isGood: false)
            switch withdrawal {
            case .staleLookUp: refresh(entry.target)
            case .unwanted: send(entry.target)
            case .lost: letGo(entry.target)
            case .expired: settle(entry.target, Settlement(outcome: .expired))
            }
        }
        gateway.putBack(kept)
    }

    private func answered(
        _ batch: ExpoBatch, of gateway: ExpoGateway, _ response: HTTPResponse, _ bulkhead: Bulkhead
    ) {
        let sentAt = wall(at: response.sentAt)
        let span = loop.now - response.sentAt
        bulkhead.pace.answered(after: span, at: loop.now)
        noteClock(response, bulkhead)
        bulkhead.metrics.answered(status: response.status, after: span)
        let answer = GatewayAnswer(
            status: response.status, body: response.body, retryAfter: response.text(.retryAfter),
            date: response.text(.date), now: loop.wall)
        let entries = batch.entries
        let judged = ExpoVerdict.judge(
            answer, messages: entries.count,
            sent: { index in
                let target = entries[index].target
                return SentRequest(
                    sentAt: sentAt, registeredAt: target.address?.registeredAt ?? sentAt,
                    attempts: target.attempts + 1)
            }, parser: answerParser)
        switch judged {
        case .tickets(let tickets):
            bulkhead.answersUncounted += entries.count
            for (entry, ticket) in zip(entries, tickets) {
                entry.target.gatewayID.removeAll()
                if let id = ticket.id { entry.target.gatewayID.append(id) }
                settle(entry, by: ticket.verdict, status: response.status, sentAt, span, bulkhead)
            }
        case .whole(let verdict):
            for entry in entries {
                settle(entry, by: verdict, status: response.status, sentAt, span, bulkhead)
            }
        case .halve(let verdict) where entries.count == 1:
            settle(entries[0], by: verdict, status: response.status, sentAt, span, bulkhead)
        case .halve:
            // Nothing was sent: one message is at fault, and the others must not suffer for it.
            let middle = entries.count / 2
            takeBack(entries)
            // Kept with each: parts that have waited for a second are looked up again, and would
            // otherwise spoil a whole request anew, again and again.
            for entry in entries { entry.target.expoShare = max(middle, 1) }
            gateway.resend([
                ExpoBatch(Array(entries[..<middle]), isOfOneProject: batch.isOfOneProject),
                ExpoBatch(Array(entries[middle...]), isOfOneProject: batch.isOfOneProject),
            ])
        case .projects(let projects):
            divide(batch, of: gateway, by: projects, response.status, sentAt, span, bulkhead)
        case .unclear(let detail):
            for entry in entries {
                gaveRoom(entry.target, bulkhead, isGood: false)
                lostAnswer(entry.target, .malformedResponse, sentAt: response.sentAt)
            }
            alarms.unclear(detail, bulkhead)
        }
    }

    private func settle(
        _ entry: ExpoBatch.Entry, by verdict: Verdict, status: Int, _ sentAt: UnixMillis,
        _ span: TimeSpan, _ bulkhead: Bulkhead
    ) {
        gaveRoom(entry.target, bulkhead, isGood: status < 300)
        noteAttempt(entry.target, sentAt: sentAt)
        entry.target.gatewayTime = span
        follow(verdict, entry.target, status: status)
    }

    /// The messages go out again, as parts of other requests.
    private func takeBack(_ entries: [ExpoBatch.Entry]) {
        for entry in entries {
            entry.target.request = nil
            entry.target.mayBeWritten = false
        }
    }

    /// Nothing was sent, because the tokens belong to several projects: each project's go out on
    /// their own, once.
    private func divide(
        _ batch: ExpoBatch, of gateway: ExpoGateway, by projects: [String: [String]], _ status: Int,
        _ sentAt: UnixMillis, _ span: TimeSpan, _ bulkhead: Bulkhead
    ) {
        var places: [String: String] = [:]
        for (project, tokens) in projects { for token in tokens { places[token] = project } }
        var groups: [String: [ExpoBatch.Entry]] = [:]
        for entry in batch.entries {
            groups[places[entry.target.address?.token ?? ""] ?? "", default: []].append(entry)
        }
        guard !batch.isOfOneProject, groups.count > 1 else {
            var verdict = Verdict(.final(.rejected), reason: .expoTooManyExperienceIDs)
            verdict.fault = .config
            for entry in batch.entries {
                settle(entry, by: verdict, status: status, sentAt, span, bulkhead)
            }
            return
        }
        takeBack(batch.entries)
        gateway.resend(groups.values.map { ExpoBatch($0, isOfOneProject: true) })
    }
}
