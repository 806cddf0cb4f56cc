// What is wrong with a process, out of its metrics, each with the page that says what to do. The
// bounds are those of the alert rules, for this process alone. What is bad at any moment is told at
// once, without the patience of its rule; what comes and goes in good times too has to last as long
// as there.

internal import Base
internal import Pipeline
internal import Telemetry

/// Finds what is wrong.
internal struct StatusProblems {
    let registry: MetricsRegistry
    let history: StatusHistory

    private enum Bounds {
        static let eventsLate = 120.0
        static let drain = 300.0
        static let commitAge = 15.0
        static let indexLag = 10.0
        static let certificateDays = 14.0
        static let heartbeat = 30.0
        static let memoryBytes = 8e8
        static let descriptors = 0.8
        static let failures = (share: 0.05, window: TimeSpan.minutes(10))
        static let deadTokens = (share: 0.1, window: TimeSpan.minutes(30))
        static let unseen = (share: 0.2, window: TimeSpan.hours(1))
        /// A share of fewer pushes says nothing. Rules wait instead.
        static let pushes = 100.0
        static let connectFailures = (count: 30.0, window: TimeSpan.minutes(5))
        static let uncounted = TimeSpan.minutes(10)
        static let skippedRecords = TimeSpan.hours(1)
        static let misrouted = TimeSpan.minutes(15)
        /// A single one is out of the window before.
        static let deadLetters = (window: TimeSpan.minutes(10), lasts: TimeSpan.minutes(12))
        static let gatewayLimits = TimeSpan.minutes(10)
        static let parkedStays = TimeSpan.minutes(30)
    }

    /// The problems: what stops work first, then what goes wrong in it, then what only lasts.
    func find(hindrances: [String], at now: MonotonicTime) -> [ReplicaReport.Problem] {
        findStanding(hindrances) + findGrowing(history.growth(registry, at: now), at: now)
    }

    /// What is wrong at this moment.
    private func findStanding(_ hindrances: [String]) -> [ReplicaReport.Problem] {
        var problems: [ReplicaReport.Problem] = []
        func add(_ page: String, _ text: String) {
            problems.append(ReplicaReport.Problem(page: page, text: text))
        }
        for reason in hindrances { add("BugleNotReady", reason) }
        for breaker in registry.readings(of: "bugle_breakers_open") where breaker.value > 0 {
            add("BugleGatewayDown", "\(place(breaker)) fails, its events are parked")
        }
        let refusals = ["bugle_credential_refused", "bugle_bulkhead_refused"]
            .flatMap { registry.readings(of: $0) }.filter { $0.value > 0 }
        for place in Set(refusals.map(place)).sorted() {
            add("BugleCredentialRefused", "\(place) refuses our credential")
        }
        for pending in registry.readings(of: "bugle_credentials_pending") where pending.value > 0 {
            add(
                "BugleCredentialPending",
                "\(place(pending)): a new credential does not serve, the old one still does")
        }
        for skew in registry.readings(of: "bugle_clock_skew_seconds") where skew.value != 0 {
            add(
                "BugleClockWrong",
                "this machine's clock is off by \(Int64(abs(skew.value).rounded())) s, says "
                    + skew.label("gateway"))
        }
        for fuse in registry.readings(of: "bugle_fuse_tripped") where fuse.value > 0 {
            add("BugleFuseTripped", "\(place(fuse)): verdicts on tokens are held back")
        }
        let lag = registry.sum(of: "bugle_consumer_lag_seconds")
        if lag > Bounds.eventsLate {
            add("BugleEventsLate", "the oldest open event is \(Int64(lag)) s old")
        }
        let drain = registry.readings(of: "bugle_seconds_to_drain").max { $0.value < $1.value }
        if let drain, drain.value > Bounds.drain {
            add(
                "BugleBacklogGrows",
                "the backlog takes \(Int64(drain.value)) s, held back by "
                    + drain.label("bottleneck"))
        }
        if registry.sum(of: "bugle_partitions_held_back") > 0 {
            add("BuglePartitionHeldBack", "a partition is read no further behind one event")
        }
        if registry.sum(of: "bugle_commit_age_seconds") > Bounds.commitAge {
            add("BugleCommitsStuck", "nothing is committed")
        }
        let indexLag = registry.sum(of: "bugle_index_lag_seconds")
        if indexLag > Bounds.indexLag {
            add("BugleIndexBehind", "the token index is \(Int64(indexLag)) s behind")
        }
        if registry.sum(of: "bugle_redis_evicts") > 0 {
            add(
                "BugleRedisEvicts",
                "Redis may evict keys of the token index: maxmemory-policy is not noeviction")
        }
        for left in registry.readings(of: "bugle_certificate_seconds_left")
        where left.value < Bounds.certificateDays * 86_400 {
            add(
                "BugleCertificateEnds",
                "the certificate of \(left.label("setting")) ends in "
                    + "\(Int64((left.value / 86_400).rounded(.down))) days")
        }
        if registry.sum(of: "bugle_fleet_heartbeat_age_seconds") > Bounds.heartbeat {
            add("BugleControlUnread", "what operators say is not heard; their last word holds")
        }
        if registry.sum(of: "process_resident_memory_bytes") > Bounds.memoryBytes {
            add("BugleMemoryHigh", "it uses much memory")
        }
        let descriptors = registry.sum(of: "process_max_fds")
        if registry.sum(of: "process_open_fds") > descriptors * Bounds.descriptors {
            add("BugleDescriptorsShort", "it has most of its descriptors open")
        }
        return problems
    }

    /// What has gone wrong lately, and what has lasted.
    private func findGrowing(
        _ growth: StatusHistory.Growth, at now: MonotonicTime
    ) -> [ReplicaReport.Problem] {
        var problems: [ReplicaReport.Problem] = []
        func addShare(
            _ page: String, _ part: StatusHistory.Kind, of whole: StatusHistory.Kind,
            _ bound: (share: Double, window: TimeSpan), _ text: (String, String) -> String
        ) {
            for (subject, count) in growth.subjects(part, in: bound.window) {
                let all = growth.of(
                    StatusHistory.Tally(kind: whole, subject: subject), in: bound.window)
                guard all >= Bounds.pushes, count > all * bound.share else { continue }
                let percent = "\(Int64((100 * count / all).rounded())) %"
                problems.append(
                    ReplicaReport.Problem(page: page, text: text(subject, percent)))
            }
        }
        func addCount(
            _ page: String, _ kind: StatusHistory.Kind, above count: Double = 0,
            _ window: TimeSpan, _ text: (String, Int64) -> String
        ) {
            for (subject, by) in growth.subjects(kind, in: window) where by > count {
                problems.append(
                    ReplicaReport.Problem(page: page, text: text(subject, Int64(by))))
            }
        }
        addShare("BuglePushesFail", .failures, of: .pushes, Bounds.failures) {
            "\($0): \($1) of the pushes of the last 10 min failed"
        }
        addShare("BugleTokensDie", .deadTokens, of: .pushes, Bounds.deadTokens) {
            "\($0): \($1) of the pushes of the last 30 min met dead tokens"
        }
        addShare("BugleHighUnseen", .unseen, of: .acceptedByFCM, Bounds.unseen) {
            "\($1) of what \($0) sent to Android within the hour has high priority and shows nothing"
        }
        let failures = Bounds.connectFailures
        addCount("BugleConnectionsFail", .connectFailures, above: failures.count, failures.window) {
            "\($1) connections to \($0) did not come about in the last 5 min"
        }
        addCount("BugleCapsUncounted", .uncounted, Bounds.uncounted) {
            "caps and quotas were not counted \($1) times in the last 10 min"
        }
        addCount("BugleIndexRecordsSkipped", .skippedRecords, Bounds.skippedRecords) {
            "\($1) records of the index's topics were not readable within the hour"
        }
        addCount("BugleMisrouted", .misrouted, Bounds.misrouted) {
            "some \($1) records of \($0) in the last 15 min are in another partition than their user's"
        }
        return problems + findLasting(growth, at: now)
    }

    /// What is normal for a while.
    private func findLasting(
        _ growth: StatusHistory.Growth, at now: MonotonicTime
    ) -> [ReplicaReport.Problem] {
        var conditions: [(problem: ReplicaReport.Problem, lasts: TimeSpan)] = []
        func add(_ page: String, _ text: String, _ lasts: TimeSpan) {
            conditions.append((ReplicaReport.Problem(page: page, text: text), lasts))
        }
        for (code, _) in growth.subjects(.deadLetters, in: Bounds.deadLetters.window) {
            add("BugleDeadLetters", "events become dead letters: \(code)", Bounds.deadLetters.lasts)
        }
        for reading in registry.readings(of: "bugle_bulkhead_waiting") where reading.value > 0 {
            add(
                "BugleGatewayLimits", "\(place(reading)) takes no more than it gets",
                Bounds.gatewayLimits)
        }
        let open = registry.readings(of: "bugle_breakers_open").filter { $0.value > 0 }
        let failing = Set(open.map(lot))
        // What an operator holds back stays, and its pause is told by itself.
        let isPaused = registry.readings(of: "bugle_paused_levers")
            .contains { $0.label("lever") == LeverKind.gateway.rawValue && $0.value > 0 }
        for parked in registry.readings(of: "bugle_parked_backlog_records")
        where parked.value > 0 && !isPaused && !failing.contains(lot(parked)) {
            add("BugleParkedStays", "events stay parked for \(lot(parked))", Bounds.parkedStays)
        }
        // They are known again by their texts, which have no numbers.
        let lasting = history.lasting(conditions.map(\.problem), at: now)
        return conditions.compactMap { problem, lasts in
            guard let since = lasting[problem], since >= lasts else { return nil }
            return ReplicaReport.Problem(
                page: problem.page,
                text: "\(problem.text), for \(Int64(since.seconds) / 60) min")
        }
    }

    /// A gateway and environment, which share a parking topic.
    private func lot(_ reading: MetricReading) -> String {
        let environment = reading.label("environment")
        return reading.label("gateway") + (environment == "none" ? "" : " \(environment)")
    }

    private func place(_ reading: MetricReading) -> String {
        let environment = reading.label("environment")
        let rest = environment.isEmpty || environment == "none" ? "" : " \(environment)"
        return "\(reading.label("gateway"))\(rest) of \(reading.label("app"))"
    }
}
