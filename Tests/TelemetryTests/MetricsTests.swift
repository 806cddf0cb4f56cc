import Base
import Telemetry
import Testing

private func exposition(_ registry: MetricsRegistry) -> String {
    let writer = ByteWriter()
    registry.writeExposition(to: writer)
    return writer.text
}

@Suite struct Metrics {
    @Test func `shards of one series are added up`() {
        let registry = MetricsRegistry()
        for lane in 1...3 {
            let counter = registry.counter(
                "bugle_sends_total", help: "Pushes sent.", labels: [("gateway", "apns")])
            counter.add(lane)
            counter.add()
            registry.gauge("bugle_in_flight", help: "Open.").add(lane - 2)
        }
        registry.counter("bugle_sends_total", help: "", labels: [("gateway", "fcm")]).add(7)
        #expect(
            exposition(registry) == """
                # HELP bugle_sends_total Pushes sent.
                # TYPE bugle_sends_total counter
                bugle_sends_total{gateway="apns"} 9
                bugle_sends_total{gateway="fcm"} 7
                # HELP bugle_in_flight Open.
                # TYPE bugle_in_flight gauge
                bugle_in_flight 0

                """)
    }

    @Test func `a histogram counts cumulatively and keeps the sum`() {
        let registry = MetricsRegistry()
        for _ in 0..<2 {
            let histogram = registry.histogram(
                "bugle_wait_seconds", help: "Waits.", labels: [("lane", "0")],
                buckets: [0.25, 1, 2.5])
            histogram.observe(0.25)
            histogram.observe(.milliseconds(1500))
            histogram.observe(100)
        }
        #expect(
            exposition(registry) == """
                # HELP bugle_wait_seconds Waits.
                # TYPE bugle_wait_seconds histogram
                bugle_wait_seconds_bucket{lane="0",le="0.25"} 2
                bugle_wait_seconds_bucket{lane="0",le="1"} 2
                bugle_wait_seconds_bucket{lane="0",le="2.5"} 4
                bugle_wait_seconds_bucket{lane="0",le="+Inf"} 6
                bugle_wait_seconds_sum{lane="0"} 203.5
                bugle_wait_seconds_count{lane="0"} 6

                """)
    }

    @Test func `label values and help are escaped`() {
        let registry = MetricsRegistry()
        registry.gauge("a", help: "x\\y\n\"z\"", labels: [("l", "x\\y\n\"z\"")]) { 0.5 }
        registry.gauge("b", help: "b") { .nan }
        #expect(
            exposition(registry)
                == "# HELP a x\\\\y\\n\"z\"\n# TYPE a gauge\na{l=\"x\\\\y\\n\\\"z\\\"\"} 0.5\n"
                + "# HELP b b\n# TYPE b gauge\nb NaN\n")
    }

    @Test func `a label value that is too long is cut, and two that begin alike stay two`() {
        let registry = MetricsRegistry()
        let limit = MetricsRegistry.Limits.labelValueBytes
        let values = [
            String(repeating: "a", count: limit), String(repeating: "a", count: limit + 1),
            String(repeating: "a", count: limit) + "b", String(repeating: "€", count: 100),
        ]
        for (index, value) in values.enumerated() {
            for _ in 0..<2 {
                registry.counter("x_total", help: "X.", labels: [("key", value)]).add(index + 1)
            }
        }
        let readings = registry.readings(of: "x_total")
        #expect(readings.map(\.value) == [2, 4, 6, 8])
        let shown = readings.map { $0.label("key") }
        #expect(shown[0] == values[0])
        // As it was in every process before: a series goes on after a restart.
        #expect(shown[1] == String(repeating: "a", count: 111) + "~ba20d66a82fdb40c")
        #expect(shown[2].hasPrefix(String(repeating: "a", count: 111) + "~"))
        #expect(shown[3].hasPrefix(String(repeating: "€", count: 37) + "~"))
        #expect(shown.dropFirst().allSatisfy { $0.utf8.count <= limit })
    }

    @Test func `more series than a name may have are counted and not shown`() {
        let registry = MetricsRegistry()
        let limit = MetricsRegistry.Limits.seriesPerFamily
        let counters = (0..<limit + 10).map {
            registry.counter("x_total", help: "X.", labels: [("app", "a\($0)")])
        }
        for counter in counters { counter.add(1) }
        #expect(registry.sum(of: "x_total") == Double(limit))
    }

    @Test func `a name that breaks the rules traps`() async {
        await #expect(processExitsWith: .failure) {
            _ = MetricsRegistry().gauge("9lives", help: "")
        }
        await #expect(processExitsWith: .failure) {
            _ = MetricsRegistry().counter("no_suffix", help: "")
        }
        await #expect(processExitsWith: .failure) {
            _ = MetricsRegistry().gauge("a", help: "", labels: [("a-b", "")])
        }
    }
}

@Suite struct `A latency histogram` {
    @Test func `quantiles are within three percent at any scale`() {
        var random = SeededRandom(seed: 11)
        for scale in [100, 10_000, 1_000_000, 3_000_000_000] as [Int64] {
            var histogram = LatencyHistogram()
            var samples: [Int64] = []
            for _ in 0..<5000 {
                let nanos = Int64.random(in: 0...scale, using: &random)
                samples.append(nanos)
                histogram.record(TimeSpan(nanos: nanos))
            }
            samples.sort()
            for share in [0.5, 0.9, 0.99, 0.999, 1] {
                let exact = samples[Int((5000 * share).rounded(.up)) - 1]
                let estimate = histogram.quantile(share).nanos
                #expect(estimate >= exact && Double(estimate) <= Double(exact) * 1.032 + 1)
            }
            #expect(histogram.longest.nanos == samples.last)
        }
    }

    @Test func `merging is recording together`() {
        var (left, right, both) = (LatencyHistogram(), LatencyHistogram(), LatencyHistogram())
        for value in 0..<1000 as Range<Int64> {
            let span = TimeSpan(nanos: value * value * value)
            if value % 3 == 0 { left.record(span) } else { right.record(span) }
            both.record(span)
        }
        left.merge(right)
        #expect(left.count == both.count && left.mean == both.mean && left.longest == both.longest)
        for share in [0, 0.25, 0.5, 1] { #expect(left.quantile(share) == both.quantile(share)) }
    }

    @Test func `an empty one, and the extremes, are answered`() {
        var histogram = LatencyHistogram()
        #expect(histogram.quantile(0.5) == .zero && histogram.mean == .zero)
        histogram.record(TimeSpan(nanos: .max))
        histogram.record(TimeSpan(nanos: -5))
        #expect(histogram.quantile(1).nanos == .max)
        #expect(histogram.quantile(0) == .zero)
    }
}
