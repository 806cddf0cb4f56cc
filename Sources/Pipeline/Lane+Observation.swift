// What a lane tells about its state, twice a second: gauges and the counts its pools keep.

internal import Base
internal import EventLoop
internal import HTTP2
internal import Kafka
internal import Telemetry
internal import TokenIndex

extension Lane {
    /// Refreshes what probes and metrics read.
    func observe() {
        pulse.note(indexHindrance: index.isReady ? nil : index.readiness.description)
        metrics.eventsInFlight.set(events.count)
        metrics.targetsInFlight.set(targets.count)
        metrics.recordBytes.set(recordBytes)
        metrics.windows.set(windows.count)
        metrics.windowEvents.set(windows.memberCount)
        metrics.windowBytes.set(windows.bytes)
        for observer in poolObservers { observer.observe() }
        dropIdleServices()
        for bulkhead in apps.lazy.flatMap(\.bulkheads) where bulkhead.answersUncounted > 0 {
            index.count(answers: bulkhead.answersUncounted, for: bulkhead.fuse)
            bulkhead.answersUncounted = 0
        }
        observeLag()
    }

    /// How far the events topics are behind: in records up to their ends, and by the age of the
    /// oldest event that is not complete, which is more honest than any guess from offsets.
    private func observeLag() {
        var records: Int64 = 0
        var oldest = loop.wall
        for partition in partitions where partition.road == .events {
            guard let end = partition.queue.end, let floor = partition.commitPoint else { continue }
            records += max(end - floor, 0)
            // Nobody knows how old an unread record is; at least as old as this lane knows of it.
            if end > max(floor, partition.ledger.newest + 1) {
                partition.behindSince = partition.behindSince ?? loop.wall
            } else {
                partition.behindSince = nil
            }
            oldest = min(oldest, partition.behindSince ?? oldest)
        }
        for event in events.inUse where event.partition?.road == .events {
            oldest = min(oldest, event.timestamp)
        }
        pulse.note(lag: records, age: loop.wall - oldest)
    }
}

/// Publishes the statistics of pools with one name: of one host, or of all push services.
internal final class PoolObserver {
    private var pools: [HTTP2Pool] = []
    private let connections: Gauge
    private let inFlight: Gauge
    private let queued: Gauge
    private var counts: [Count] = []

    /// One statistic of all pools, those that are gone included.
    private struct Count {
        let path: KeyPath<PoolStatistics, Int>
        let counter: Counter
        var seen = 0
        var gone = 0
    }

    init(_ name: String, _ registry: MetricsRegistry) {
        let labels = [("host", name)]
        connections = registry.gauge(
            "bugle_connections", help: "Connections that take requests.", labels: labels)
        inFlight = registry.gauge(
            "bugle_requests_in_flight", help: "Requests written and not answered.", labels: labels)
        queued = registry.gauge(
            "bugle_requests_queued", help: "Requests that wait to be written.", labels: labels)
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

    convenience init(_ pool: HTTP2Pool, _ registry: MetricsRegistry) {
        self.init(pool.origin.host, registry)
        add(pool)
    }

    func add(_ pool: HTTP2Pool) { pools.append(pool) }

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
        for index in counts.indices {
            let count = counts[index]
            let now = pools.reduce(count.gone) { $0 + $1.statistics[keyPath: count.path] }
            count.counter.add(now - count.seen)
            counts[index].seen = now
        }
    }
}
