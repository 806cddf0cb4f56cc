internal import Base
internal import Synchronization

/// All metrics of a process.
///
/// Names and labels are the program's own, never data: a name that breaks the rules below is a
/// fault of the program and traps. A label's value may come from a configuration, and never does:
/// one that is too long is cut. Registration takes a lock and belongs to start-up; the metric
/// objects themselves take none.
public final class MetricsRegistry: Sendable {
    /// What a registry holds at most.
    public enum Limits {
        /// Metric names.
        public static let families = 256
        /// Label sets of one name; what is counted under more is not shown. It grows with the number
        /// of apps, and no number of apps may end a process.
        public static let seriesPerFamily = 16_384
        /// Labels of one series.
        public static let labels = 8
        /// Bytes of one label value. Of a longer one as much is shown as fits in front of `~` and a
        /// hash of all of it, so that two that begin alike stay two.
        public static let labelValueBytes = 128
    }

    private let families = Mutex<[MetricFamily]>([])

    /// A registry without metrics.
    public init() {}

    /// A new shard of a counter; the name ends in `_total`.
    public func counter(
        _ name: String, help: String, labels: [(String, String)] = []
    ) -> Counter {
        precondition(name.hasSuffix("_total"), "a counter's name ends in _total")
        let counter = Counter()
        register(name, .counter, help, labels, .counter(counter))
        return counter
    }

    /// A counter that somebody else keeps; asked for whenever the metrics are read, on the
    /// reader's thread.
    public func counter(
        _ name: String, help: String, labels: [(String, String)] = [],
        _ read: @escaping @Sendable () -> Double
    ) {
        precondition(name.hasSuffix("_total"), "a counter's name ends in _total")
        register(name, .counter, help, labels, .function(read))
    }

    /// A new shard of a gauge.
    public func gauge(_ name: String, help: String, labels: [(String, String)] = []) -> Gauge {
        let gauge = Gauge()
        register(name, .gauge, help, labels, .gauge(gauge))
        return gauge
    }

    /// A gauge whose number is asked for whenever somebody reads the metrics, on the reader's
    /// thread.
    public func gauge(
        _ name: String, help: String, labels: [(String, String)] = [],
        _ read: @escaping @Sendable () -> Double
    ) {
        register(name, .gauge, help, labels, .function(read))
    }

    /// A new shard of a histogram with the given upper bounds, in the unit that the name ends in.
    public func histogram(
        _ name: String, help: String, labels: [(String, String)] = [],
        buckets: [Double] = Histogram.latencyBuckets
    ) -> Histogram {
        precondition(!buckets.isEmpty, "a histogram has buckets")
        precondition(zip(buckets, buckets.dropFirst()).allSatisfy(<), "bounds grow")
        precondition(!labels.contains { $0.0 == "le" }, "le is the histogram's own label")
        let histogram = Histogram(bounds: buckets)
        register(name, .histogram, help, labels, .histogram(histogram))
        return histogram
    }

    private func register(
        _ name: String, _ kind: MetricFamily.Kind, _ help: String, _ labels: [(String, String)],
        _ shard: MetricShard
    ) {
        precondition(MetricName.isValid(name, colons: true), "not a metric name")
        precondition(labels.count <= Limits.labels, "too many labels")
        for (label, _) in labels {
            precondition(MetricName.isValid(label, colons: false), "not a label name")
            precondition(!label.hasPrefix("__"), "a reserved label name")
        }
        let key = labels.map { MetricLabel(name: $0.0, value: $0.1) }
        families.withLock { families in
            if let index = families.firstIndex(where: { $0.name == name }) {
                precondition(families[index].kind == kind, "one name, two kinds of metric")
                families[index].add(shard, labels: key)
            } else {
                precondition(families.count < Limits.families, "too many metrics")
                var family = MetricFamily(name: name, kind: kind, help: help)
                family.add(shard, labels: key)
                families.append(family)
            }
        }
    }

    internal func snapshot() -> [MetricFamily] { families.withLock { $0 } }
}

/// All series of one name.
internal struct MetricFamily: Sendable {
    enum Kind: String, Sendable { case counter, gauge, histogram }

    struct Series: Sendable {
        var labels: [MetricLabel]
        var shards: [MetricShard]
    }

    let name: String
    let kind: Kind
    let help: String
    private(set) var series: [Series] = []

    init(name: String, kind: Kind, help: String) {
        self.name = name
        self.kind = kind
        self.help = help
    }

    mutating func add(_ shard: MetricShard, labels: [MetricLabel]) {
        if let index = series.firstIndex(where: { $0.labels == labels }) {
            if case .histogram(let new) = shard, case .histogram(let old) = series[index].shards[0]
            {
                precondition(new.bounds == old.bounds, "shards of a histogram share their buckets")
            }
            series[index].shards.append(shard)
        } else if series.count < MetricsRegistry.Limits.seriesPerFamily {
            series.append(Series(labels: labels, shards: [shard]))
        }
    }
}

internal struct MetricLabel: Sendable, Equatable {
    let name: String
    let value: String

    init(name: String, value: String) {
        self.name = name
        self.value = Self.fitting(value)
    }

    private static func fitting(_ value: String) -> String {
        let limit = MetricsRegistry.Limits.labelValueBytes
        guard value.utf8.count > limit else { return value }
        // FNV-1a: the same in every process, so that a series goes on after a restart.
        let hash = value.utf8.reduce(0xCBF2_9CE4_8422_2325 as UInt64) {
            ($0 ^ UInt64($1)) &* 0x100_0000_01B3
        }
        let digits = String(hash, radix: 16)
        let mark = "~" + String(repeating: "0", count: 16 - digits.utf8.count) + digits
        var end = value.utf8.index(value.utf8.startIndex, offsetBy: limit - mark.utf8.count)
        // Back to the start of the character that does not fit.
        while value.utf8[end] & 0xC0 == 0x80 { end = value.utf8.index(before: end) }
        return value[..<end] + mark
    }
}

internal enum MetricShard: Sendable {
    case counter(Counter)
    case gauge(Gauge)
    case function(@Sendable () -> Double)
    case histogram(Histogram)
}

internal enum MetricName {
    /// `[a-zA-Z_][a-zA-Z0-9_]*`; metric names may have colons too.
    static func isValid(_ name: String, colons: Bool) -> Bool {
        var first = true
        for byte in name.utf8 {
            switch byte {
            case 0x61...0x7A, 0x41...0x5A, 0x5F: break
            case 0x30...0x39 where !first: break
            case 0x3A where colons: break
            default: return false
            }
            first = false
        }
        return !first
    }
}
