// What a registry holds, for the parts of the program that show some of it themselves.

/// One series at one moment.
public struct MetricReading: Sendable {
    /// Names and values of its labels, in the order of registration.
    public let labels: [(name: String, value: String)]
    /// The number of a counter or gauge; the count of observations of a histogram.
    public let value: Double
    /// For a histogram the observations in each bucket, the last one for what is larger than every
    /// bound; else empty.
    public let buckets: [Int64]

    /// The value of a label; empty when the series has none of that name.
    public func label(_ name: String) -> String {
        labels.first { $0.name == name }?.value ?? ""
    }
}

extension MetricsRegistry {
    /// The series of a name, each summed over its shards; empty when nothing has that name. Safe
    /// on any thread, with the same blur as the exposition.
    public func readings(of name: String) -> [MetricReading] {
        guard let family = snapshot().first(where: { $0.name == name }) else { return [] }
        return family.series.map { series in
            var value = 0.0
            var buckets: [Int64] = []
            for shard in series.shards {
                switch shard {
                case .counter(let counter): value += Double(counter.value)
                case .gauge(let gauge): value += Double(gauge.value)
                case .function(let read): value += read()
                case .histogram(let histogram):
                    let counts = (0...histogram.bounds.count).map(histogram.count)
                    buckets = buckets.isEmpty ? counts : zip(buckets, counts).map(+)
                }
            }
            if !buckets.isEmpty { value = Double(buckets.reduce(0, +)) }
            return MetricReading(
                labels: series.labels.map { ($0.name, $0.value) }, value: value, buckets: buckets)
        }
    }

    /// The sum over the series of a name.
    public func sum(of name: String) -> Double {
        readings(of: name).reduce(0) { $0 + $1.value }
    }
}
