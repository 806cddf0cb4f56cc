// What is wrong with a process now, out of its metrics, each with the page that says what to do.
// The bounds are those of the alert rules, without their patience.

internal import Base
internal import Telemetry

/// Finds what is wrong.
internal struct StatusProblems {
    let registry: MetricsRegistry

    private enum Bounds {
        static let eventsLate = 120.0
        static let drain = 300.0
        static let commitAge = 15.0
        static let indexLag = 10.0
        static let certificateDays = 14.0
        static let heartbeat = 30.0
        static let memoryBytes = 1.5e9
        static let descriptors = 0.8
    }

    /// The problems, the worst first.
    func find(hindrances: [String]) -> [ReplicaReport.Problem] {
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
        if registry.sum(of: "bugle_credentials_pending") > 0 {
            add("BugleCredentialPending", "a new credential does not serve, the old one still does")
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

    private func place(_ reading: MetricReading) -> String {
        let environment = reading.label("environment")
        let rest = environment.isEmpty || environment == "none" ? "" : " \(environment)"
        return "\(reading.label("gateway"))\(rest) of \(reading.label("app"))"
    }
}
