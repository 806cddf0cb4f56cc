import Base
import Telemetry
import Testing

@Suite struct `What a registry tells the program itself` {
    @Test func `series are summed over their shards, functions are asked`() {
        let registry = MetricsRegistry()
        for lane in 1...2 {
            registry.counter("bugle_a_total", help: "", labels: [("app", "x")]).add(lane)
        }
        registry.counter("bugle_a_total", help: "", labels: [("app", "y")]) { 7.5 }
        let readings = registry.readings(of: "bugle_a_total")
        #expect(readings.map(\.value) == [3, 7.5])
        #expect(readings.map { $0.label("app") } == ["x", "y"])
        #expect(readings[0].label("gateway") == "")
        #expect(registry.sum(of: "bugle_a_total") == 10.5)
        #expect(registry.readings(of: "bugle_b_total").isEmpty)
        let text = ByteWriter()
        registry.writeExposition(to: text)
        #expect(text.text.contains("# TYPE bugle_a_total counter\n"))
        #expect(text.text.contains("bugle_a_total{app=\"y\"} 7.5\n"))
    }

    @Test func `a histogram has a count for each bucket`() {
        let registry = MetricsRegistry()
        for _ in 0..<2 {
            let histogram = registry.histogram("bugle_h_seconds", help: "", buckets: [1, 2])
            for value in [0.5, 1.5, 9] { histogram.observe(value) }
        }
        let reading = registry.readings(of: "bugle_h_seconds")[0]
        #expect(reading.buckets == [2, 2, 2])
        #expect(reading.value == 6)
    }
}

@Suite struct `The newest troubles` {
    @Test func `are the last warnings and errors, with their fields`() {
        let troubles = RecentTroubles()
        let time = ManualTime(wall: UnixMillis(1_700_000_000_000))
        let log = Log(level: .info, format: .json, sink: CollectingSink(), time: time)
            .keeping(troubles).named("index")
        log.info("all is well")
        for number in 1...25 { log.warning("late", ["number": LogValue(number)]) }
        log.error("broken", ["why": "x"])
        let lines = troubles.lines
        #expect(lines.count == RecentTroubles.linesMax)
        #expect(lines[0].message == "broken" && lines[0].level == .error)
        #expect(lines[0].component == "index" && lines[0].at == 1_700_000_000_000)
        #expect(lines[1].fields.map(\.name) == ["number"])
        #expect(lines[1].fields.map(\.value) == ["25"])
        #expect(lines.last?.fields.first?.value == "7")
    }
}
