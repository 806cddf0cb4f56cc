// What the pipeline tells an operator: few lines, rate limited, with a cause and a remedy, and
// never a token, payload or user.

internal import Base
internal import Gateways
internal import HTTP2
internal import Kafka
internal import Synchronization
internal import Telemetry
internal import TokenIndex

/// The log of one process's pipeline; shared by its lanes.
internal final class AlarmLog: Sendable {
    private let log: Log
    private let deadLetters: RateLimitedLog
    private let misrouted: RateLimitedLog
    private let foreign: RateLimitedLog
    private let index: RateLimitedLog
    private let dropped: RateLimitedLog
    private let pools: RateLimitedLog
    private let services: RateLimitedLog
    private let credentials: RateLimitedLog
    private let suspended: RateLimitedLog
    private let group: RateLimitedLog
    private let logs: RateLimitedLog
    private let unreadable: RateLimitedLog
    private let breakers: RateLimitedLog
    /// What is well or not for all lanes together: whether gateways are reached and take our
    /// credentials.
    private let states: StateLog
    /// How many lanes hold the events of a gateway back: one line tells of all of them.
    private let openBreakers = Mutex<[String: Int]>([:])
    /// Lanes whose look-ups wait; all of them do until the index was asked.
    private let waitingLanes: Mutex<Int>

    init(_ log: Log, lanes: Int) {
        waitingLanes = Mutex(lanes)
        self.log = log
        deadLetters = RateLimitedLog(log, limit: 3)
        misrouted = RateLimitedLog(log, limit: 1, interval: .minutes(1))
        foreign = RateLimitedLog(log, limit: 1, interval: .minutes(10))
        index = RateLimitedLog(log, limit: 1, interval: .minutes(1))
        dropped = RateLimitedLog(log)
        pools = RateLimitedLog(log, limit: 5)
        services = RateLimitedLog(log, limit: 1, interval: .minutes(10))
        credentials = RateLimitedLog(log, limit: 3, interval: .minutes(1))
        suspended = RateLimitedLog(log, limit: 1, interval: .minutes(10))
        group = RateLimitedLog(log, limit: 3)
        logs = RateLimitedLog(log, limit: 5)
        unreadable = RateLimitedLog(log, limit: 5)
        breakers = RateLimitedLog(log, limit: 10)
        states = StateLog(log)
    }

    func deadLetter(_ refusal: Refusal, at position: RecordPosition) {
        deadLetters.warning(
            "record set aside as a dead letter",
            [
                "code": LogValue(refusal.code.rawValue), "reason": LogValue(refusal.reason),
                "topic": LogValue(position.topic), "partition": LogValue(position.partition),
                "offset": LogValue(position.offset),
            ])
    }

    func misrouted(source: String) {
        misrouted.warning(
            "records are not in the partition of their user: the producer must key by user id and "
                + "partition by murmur2 (librdkafka and kcat: partitioner=murmur2_random)",
            ["source": LogValue(source.isEmpty ? "unknown" : source)])
    }

    /// Renaming a group leaves what waits to nobody, which its operator has to know.
    func foreign(_ topic: String) {
        foreign.warning(
            "records that wait for another consumer group are passed over: two installations share "
                + "the topic, or kafka.group was renamed while events waited; give each its own "
                + "kafka.topics.retry and kafka.topics.parked, or run the former group until "
                + "bugle backlog is empty",
            ["topic": LogValue(topic)])
    }

    func indexFault(_ fault: IndexFault) {
        index.warning("a look-up is repeated", ["reason": LogValue(describing: fault)])
    }

    /// A lane's look-ups wait from now on, or are answered again. Called when that changes only;
    /// one line tells of all lanes.
    func index(isReady: Bool, _ reason: String) {
        let count = waitingLanes.withLock { count in
            count += isReady ? -1 : 1
            return count
        }
        guard count == (isReady ? 0 : 1) else { return }
        if isReady { return log.info("look-ups are answered: the token index is complete") }
        log.warning(
            "look-ups wait: the token index is not to be trusted now",
            ["reason": LogValue(reason)])
    }

    func usageFault(_ fault: UsageFault) {
        switch fault {
        case .away(let text):
            index.warning("a cap is asked for again", ["reason": LogValue(text)])
        case .refused(let text):
            index.warning(
                "caps are not counted; pushes go out without", ["reason": LogValue(text)])
        }
    }

    func addressesDropped(_ count: Int, kept: Int) {
        dropped.warning(
            "a user has more addresses than limits.addresses_per_user; the newest were kept",
            ["dropped": LogValue(count), "kept": LogValue(kept)])
    }

    /// What a pool says. `isPushService`: the host comes out of a subscription.
    func pool(_ origin: Origin, _ alarm: PoolAlarm, isPushService: Bool) {
        let host = LogValue(describing: origin)
        switch alarm {
        case .http2NotNegotiated(let name):
            unreached(
                origin, .protocol, isPushService, .error,
                "the gateway does not speak HTTP/2: most often a proxy that intercepts TLS",
                ["gateway": host, "negotiated": LogValue(name ?? "nothing")])
        case .tlsFailed(let text):
            unreached(
                origin, .tls, isPushService, .error,
                "TLS with the gateway failed; check the endpoint's name and ca_file",
                ["gateway": host, "reason": LogValue(text)])
        case .unreachable(let text, let failures):
            unreached(
                origin, .connection, isPushService, .warning, "no connection to the gateway",
                ["gateway": host, "reason": LogValue(text), "failures": LogValue(failures)])
        case .reachable:
            states.right(
                Hurdle.allCases.map { $0.key(origin) }, "the gateway is reached again",
                ["gateway": host])
        case .credentialsRefused(let reason):
            pools.error(
                "the gateway refuses the credential of this connection",
                ["gateway": host, "reason": LogValue(reason)])
        case .calm(let pause):
            pools.warning(
                "the gateway asks for less load",
                ["gateway": host, "pause_ms": LogValue(pause.millis)])
        case .goAway(let code, let reason):
            log.debug(
                "the gateway ended a connection",
                [
                    "gateway": host, "code": LogValue("\(code)"),
                    "reason": LogValue(reason ?? ""),
                ])
        case .connectionLost(let fault, let inFlight):
            pools.warning(
                "a connection was lost with requests in flight",
                [
                    "gateway": host, "reason": LogValue("\(fault)"),
                    "in_flight": LogValue(inFlight),
                ])
        }
    }

    /// What a connection failed at.
    private enum Hurdle: String, CaseIterable {
        case connection, tls, `protocol`

        func key(_ origin: Origin) -> String { "reach/\(rawValue)/\(origin)" }
    }

    /// A connection did not come about. It is tried again and again, by every lane: one line for all
    /// that. The hosts of push services are no closed list, so theirs are counted together.
    private func unreached(
        _ origin: Origin, _ hurdle: Hurdle, _ isPushService: Bool, _ level: LogLevel,
        _ words: String, _ fields: Log.Fields
    ) {
        if isPushService { return services.write(level, words, fields) }
        states.wrong(hurdle.key(origin), level, words, fields)
    }

    /// Answers that blame us: an operator has to act, and no token is touched.
    func verdict(_ verdict: Verdict, _ bulkhead: Bulkhead?) {
        guard verdict.fault != .none, let bulkhead else { return }
        let words: String
        switch verdict.fault {
        case .clock: words = "the gateway refuses our credential because of the clock: check NTP"
        case .credential: words = "the gateway refuses our credential"
        case .config: words = "the gateway refuses our topic, project or environment"
        case .ours, .none: words = "the gateway refuses a request that Bugle should not have built"
        }
        let reason = verdict.reason?.rawValue ?? "none"
        if verdict.countsForFuse {
            // It is said of one token. Where all tokens meet it the fuse trips, and tells.
            return suspended.warning(
                "the gateway says that a token belongs to another project, topic or key",
                fields(bulkhead, reason, verdict.detail))
        }
        guard verdict.fault == .ours else {
            return refused(bulkhead, verdict.fault, words, reason, verdict.detail)
        }
        // The request was at fault, not what all of them have in common.
        credentials.error(words, fields(bulkhead, reason, verdict.detail))
    }

    /// There is no access token to send with: whoever gives them refuses us.
    func noToken(_ fault: CredentialFault, _ bulkhead: Bulkhead) {
        refused(
            bulkhead, fault.fault, "the token endpoint refuses our credential",
            fault.reason.rawValue, fault.explanation)
    }

    private func refused(
        _ bulkhead: Bulkhead, _ fault: Fault, _ words: String, _ reason: String, _ detail: String
    ) {
        bulkhead.isRefused = true
        states.wrong(
            standing(bulkhead, fault), .error, words, fields(bulkhead, reason, detail))
    }

    private func fields(_ bulkhead: Bulkhead, _ reason: String, _ detail: String) -> Log.Fields {
        [
            "app": LogValue(bulkhead.app), "gateway": LogValue(bulkhead.gateway.rawValue),
            "environment": LogValue(bulkhead.environment.rawValue),
            "reason": LogValue(reason), "detail": LogValue(detail),
        ]
    }

    /// The gateway took a push of a bulkhead that it had refused.
    func taken(_ bulkhead: Bulkhead) { noteGood(bulkhead, "the gateway takes our pushes again") }

    /// Another credential serves, or other authorities: what the gateway said before is no word on
    /// them, they were tried, and there may be no push for long that would show it.
    func replaced(_ bulkhead: Bulkhead) {
        noteGood(bulkhead, "credential or authorities are replaced since the gateway refused us")
    }

    private func noteGood(_ bulkhead: Bulkhead, _ words: String) {
        guard bulkhead.isRefused else { return }
        bulkhead.isRefused = false
        states.right(
            Fault.allCases.map { standing(bulkhead, $0) }, words,
            [
                "app": LogValue(bulkhead.app), "gateway": LogValue(bulkhead.gateway.rawValue),
                "environment": LogValue(bulkhead.environment.rawValue),
            ])
    }

    private func standing(_ bulkhead: Bulkhead, _ fault: Fault) -> String {
        let service = bulkhead.service.map { "\($0.family)" } ?? ""
        return
            "\(bulkhead.app)/\(bulkhead.gateway.rawValue)/\(bulkhead.environment.rawValue)/\(service)/\(fault)"
    }

    /// An answer to several messages that does not say which of them was taken.
    func unclear(_ detail: String, _ bulkhead: Bulkhead) {
        credentials.error(
            "an answer of the gateway does not fit its request",
            ["app": LogValue(bulkhead.app), "detail": LogValue(detail)])
    }

    /// Receipts are not to be had with our access token.
    func receiptsRefused(status: Int) {
        credentials.error(
            "Expo refuses our access token when asked for receipts", ["status": LogValue(status)])
    }

    /// A receipt that blames us.
    func receipt(_ receipt: ExpoReceipt, app: String) {
        guard receipt.fault != .none else { return }
        credentials.error(
            "a receipt of Expo blames the credentials or the request",
            ["app": LogValue(app), "reason": LogValue(receipt.reason?.rawValue ?? "none")])
    }

    func assignment(_ what: String, _ count: Int) {
        log.info(what, ["partitions": LogValue(count)])
    }

    /// A partition holds other records than it did, or fewer.
    func numberedAnew(_ place: TopicPartition, at offset: Int64, after known: Int64) {
        logs.error(
            "a partition ends before what was read of it: its topic was made anew or restored, or "
                + "an unclean leader election cut it; its records count as new, so that pushes may "
                + "be repeated; find out what the cluster lost",
            [
                "topic": LogValue(place.topic), "partition": LogValue(place.partition),
                "offset": LogValue(offset), "read_before": LogValue(known),
            ])
    }

    /// A partition was added since this process started.
    func unknownPartition(_ place: TopicPartition) {
        logs.error(
            "a partition that was added since this process started is not read: run `bugle topics "
                + "apply`, then restart",
            ["topic": LogValue(place.topic), "partition": LogValue(place.partition)])
    }

    /// A partition cannot be read.
    func unreadable(_ place: TopicPartition, _ error: KafkaError, _ reason: String) {
        unreadable.error(
            "a partition cannot be read",
            [
                "topic": LogValue(place.topic), "partition": LogValue(place.partition),
                "error": LogValue(error.name), "reason": LogValue(reason),
            ])
    }

    /// It can again.
    func readable(_ place: TopicPartition) {
        unreadable.write(
            .info, "a partition is read again",
            ["topic": LogValue(place.topic), "partition": LogValue(place.partition)])
    }

    /// A bulkhead's breaker opened.
    func unavailable(_ bulkhead: Bulkhead) {
        let isFirst = count(bulkhead, 1) == 1
        guard isFirst || bulkhead.service != nil else { return }
        breakers.warning(
            "a gateway fails: its events are parked until it answers again",
            [
                "app": LogValue(bulkhead.app), "gateway": LogValue(bulkhead.gateway.rawValue),
                "environment": LogValue(bulkhead.environment.rawValue),
            ])
    }

    /// A bulkhead's breaker closed.
    func recovered(_ bulkhead: Bulkhead) {
        let isLast = count(bulkhead, -1) == 0
        guard isLast || bulkhead.service != nil else { return }
        log.info(
            "a gateway answers again: its events return",
            [
                "app": LogValue(bulkhead.app), "gateway": LogValue(bulkhead.gateway.rawValue),
                "environment": LogValue(bulkhead.environment.rawValue),
            ])
    }

    /// Push services come and go with their lanes and are not counted.
    private func count(_ bulkhead: Bulkhead, _ change: Int) -> Int {
        guard bulkhead.service == nil else { return 0 }
        let name =
            "\(bulkhead.app)/\(bulkhead.gateway.rawValue)/\(bulkhead.environment.rawValue)"
        return openBreakers.withLock { open in
            let count = max((open[name] ?? 0) + change, 0)
            open[name] = count
            return count
        }
    }

    func groupError(_ error: KafkaError) {
        // Brokers that are away come back by themselves; a fatal error ends the membership.
        group.write(
            error.isFatal ? .error : .warning, "the consumer group reports trouble",
            ["reason": LogValue(describing: error)])
    }

    func committer(_ event: CommitterEvent) {
        if case .ended(let failure) = event {
            log.error("nothing is committed any more: \(failure)")
            return
        }
        group.warning("the committer reports trouble", ["reason": LogValue("\(event)")])
    }
}
