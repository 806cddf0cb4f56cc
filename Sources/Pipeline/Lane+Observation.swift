// What a lane tells about its state, twice a second: gauges and the counts its pools keep.

internal import Base
internal import EventLoop
internal import Gateways
internal import HTTP2
internal import Kafka
internal import Telemetry
internal import TokenIndex

extension Lane {
    /// Refreshes what probes and metrics read.
    func observe() {
        observeIndex()
        metrics.eventsInFlight.set(events.count)
        metrics.targetsInFlight.set(targets.count)
        metrics.recordBytes.set(recordBytes)
        metrics.windows.set(windows.count)
        metrics.windowEvents.set(windows.memberCount)
        metrics.windowBytes.set(windows.bytes)
        for bulkhead in apps.lazy.flatMap(\.bulkheads) where bulkhead.answersUncounted > 0 {
            index.count(answers: bulkhead.answersUncounted, for: bulkhead.fuse)
            bulkhead.answersUncounted = 0
        }
        // While the lane has no room it comes here two hundred times a second.
        guard loop.now - loadSeenAt >= Self.loadInterval else { return }
        loadSeenAt = loop.now
        for observer in poolObservers { observer.observe() }
        dropIdleServices()
        dropRetired()
        observeUnreadable()
        observeLag()
        observeBulkheads()
        observeBacklogs()
        observeOrder()
        observeParked()
        var load = currentLoad
        load.drain = drainEstimate.take(load, at: loop.now)
        pulse.note(load)
    }

    private func observeIndex() {
        let isReady = index.isReady
        let hindrance = isReady ? nil : index.readiness.description
        pulse.note(indexHindrance: hindrance)
        guard isReady != isIndexReady else { return }
        isIndexReady = isReady
        alarms.index(isReady: isReady, hindrance ?? "")
    }

    private static let loadInterval = TimeSpan.milliseconds(250)

    private var currentLoad: LaneLoad {
        var load = LaneLoad()
        for partition in partitions where partition.road == .events {
            load.partitions += 1
            load.offsetSpan = max(load.offsetSpan, partition.ledger.span)
            if !partition.ledger.hasRoom { load.heldBack += 1 }
            let unread = partition.unread
            load.unread += unread
            load.unreadInHottest = max(load.unreadInHottest, unread)
        }
        load.eventsInFlight = events.count
        load.eventsMax = settings.eventsInFlight
        load.targetsInFlight = targets.count
        load.targetsMax = settings.targetsInFlight
        load.lookUpsOpen = lookUpsOpen
        load.isIndexReady = index.isReady
        load.outboxHasRoom = committer.hasRoom
        for bulkhead in apps.lazy.flatMap(\.bulkheads) {
            load.waitingForBudget += bulkhead.waiting.count
        }
        load.fullPools = pools.count {
            $0.pool.queued > 0 && $0.pool.inFlight >= $0.pool.streamLimit
        }
        load.idle = loop.waited
        load.busy = loop.now - startedAt - loop.waited
        load.completed = metrics.events.value + metrics.reentries.value - Int64(events.count)
        return load
    }

    private func observeBulkheads() {
        let fuses = index.trippedFuses
        for bulkhead in apps.lazy.flatMap(\.bulkheads) {
            if fuses[bulkhead.fuse] != nil { bulkhead.metrics.noteTrippedFuse() }
            // Push services come behind what stands for them all, which sends nothing and shares its
            // metrics and its fuse with them: what is shown is their sum, once.
            if bulkhead.gateway == .webpush, bulkhead.service == nil { continue }
            bulkhead.metrics.note(
                bulkhead.budget, waiting: bulkhead.waiting.count, isRefused: bulkhead.isRefused,
                isHeldBack: isHeldBack(bulkhead))
        }
        for bulkhead in apps.lazy.flatMap(\.bulkheads) where bulkhead.service == nil {
            bulkhead.metrics.publish()
        }
    }

    /// Whether events of a bulkhead wait for it to answer. A breaker closes with an answer only: where
    /// no event comes to ask for one, it stays open, and nobody is to be woken for that.
    private func isHeldBack(_ bulkhead: Bulkhead) -> Bool {
        guard !bulkhead.breaker.isClosed else { return false }
        guard bulkhead.breaker.isForgotten(at: loop.now), bulkhead.waiting.isEmpty else {
            return true
        }
        let lot = ParkingLot(gateway: bulkhead.gateway, environment: bulkhead.environment)
        return partitions.contains {
            $0.road == .parked(lot) && ($0.unread > 0 || $0.head != nil || $0.openEvents > 0)
        }
    }

    /// What waits in the topics for retries and parked events.
    private func observeBacklogs() {
        var records: [Road: Int] = [:]
        for partition in partitions where partition.road != .events {
            records[partition.road, default: 0] += Int(partition.unread) + partition.openEvents
        }
        for (road, gauge) in metrics.backlogs { gauge.set(records[road] ?? 0) }
    }

    /// How far the events topics are behind: in records up to their ends, and by the age of the
    /// oldest event that is not complete, which is more honest than any guess from offsets.
    private func observeLag() {
        var records: Int64 = 0
        var oldest = loop.wall
        for partition in partitions where partition.road == .events {
            guard let lag = partition.lag else { continue }
            records += lag
            partition.noteUnread(at: loop.wall, end: partition.queue.end ?? 0)
            oldest = min(oldest, partition.behindSince ?? oldest)
        }
        for event in events.inUse where event.partition?.road == .events && !event.isOver {
            oldest = min(oldest, event.timestamp)
        }
        pulse.note(lag: records, age: loop.wall - oldest)
    }
}

/// Publishes the statistics of a gateway's pools under one name: a host's, or `webpush` for all push
/// services of an app, whose hosts come out of subscriptions.
internal final class PoolObserver {
    private var pools: [HTTP2Pool] = []
    private let connections: Gauge
    private let inFlight: Gauge
    private let queued: Gauge
    private var counts: [Count] = []
    private let streams: Gauge

    /// One statistic of all pools, those that are gone included.
    private struct Count {
        let path: KeyPath<PoolStatistics, Int>
        let counter: Counter
        var seen = 0
        var gone = 0
    }

    init(app: String, _ gateway: Gateway, host: String, _ registry: MetricsRegistry) {
        let labels = [("app", app), ("gateway", gateway.rawValue), ("host", host)]
        connections = registry.gauge(
            "bugle_connections", help: "Connections that take requests.", labels: labels)
        inFlight = registry.gauge(
            "bugle_requests_in_flight", help: "Requests written and not answered.", labels: labels)
        queued = registry.gauge(
            "bugle_requests_queued", help: "Requests that wait to be written.", labels: labels)
        streams = registry.gauge(
            "bugle_stream_limit", help: "Streams that the open connections allow, in sum.",
            labels: labels)
        func count(_ path: KeyPath<PoolStatistics, Int>, _ name: String, _ help: String) {
            counts.append(
                Count(path: path, counter: registry.counter(name, help: help, labels: labels)))
        }
        count(\.connectionsOpened, "bugle_connections_opened_total", "Connections opened.")
        count(
            \.connectFailures, "bugle_connect_failures_total",
            "Connections that did not come about.")
        count(
            \.connectionsLost, "bugle_connections_lost_total",
            "Connections lost with requests in flight.")
        count(\.requestsWritten, "bugle_requests_total", "Requests written.")
        count(\.goAways, "bugle_goaways_total", "GOAWAY frames received.")
        count(\.refusals, "bugle_streams_refused_total", "Streams refused by the peer.")
        count(
            \.resends, "bugle_requests_resent_total",
            "Requests written again because they were provably not processed.")
        count(\.timeouts, "bugle_requests_timed_out_total", "Requests without an answer.")
        count(
            \.pingsUnanswered, "bugle_pings_unanswered_total",
            "PINGs without an answer in time.")
    }

    /// Observes a pool of these apps, which share its connections.
    convenience init(
        _ pool: HTTP2Pool, apps: Set<String>, _ gateway: Gateway, _ registry: MetricsRegistry
    ) {
        let app = apps.count == 1 ? apps.first ?? Self.shared : Self.shared
        self.init(app: app, gateway, host: pool.origin.host, registry)
        add(pool)
    }

    /// Stands for the app of connections that several apps send over.
    static let shared = "shared"

    func add(_ pool: HTTP2Pool) { pools.append(pool) }

    func observes(_ pool: HTTP2Pool) -> Bool { pools.contains { $0 === pool } }

    func remove(_ pool: HTTP2Pool) {
        pools.removeAll { $0 === pool }
        let statistics = pool.statistics
        for index in counts.indices {
            counts[index].gone += statistics[keyPath: counts[index].path]
        }
    }

    func observe() {
        connections.set(pools.reduce(0) { $0 + $1.openConnectionCount })
        inFlight.set(pools.reduce(0) { $0 + $1.inFlight })
        queued.set(pools.reduce(0) { $0 + $1.queued })
        streams.set(pools.reduce(0) { $0 + $1.streamLimit })
        for index in counts.indices {
            let count = counts[index]
            let now = pools.reduce(count.gone) { $0 + $1.statistics[keyPath: count.path] }
            count.counter.add(now - count.seen)
            counts[index].seen = now
        }
    }
}
