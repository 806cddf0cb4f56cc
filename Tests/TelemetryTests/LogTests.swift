import Base
import Telemetry
import Testing

@Suite struct Logging {
    private let sink = CollectingSink()
    private let time = ManualTime(wall: UnixMillis(1_735_689_600_042))

    private func log(_ level: LogLevel = .info, _ format: LogFormat = .json) -> Log {
        Log(level: level, format: format, sink: sink, time: time)
    }

    @Test func `a line is one JSON object`() {
        log().named("kafka").warning(
            "say \"hi\"\n",
            [
                "topic": "a\u{1}b", "partition": 3, "ratio": 0.5, "ok": true,
                "n": LogValue(UInt64.max),
            ])
        #expect(
            sink.lines == [
                #"{"ts":"2025-01-01T00:00:00.042Z","level":"warning","msg":"say \"hi\"\n","#
                    + #""component":"kafka","topic":"a\u0001b","partition":3,"ratio":0.5,"#
                    + #""ok":true,"n":9223372036854775807}"#
            ])
    }

    @Test func `a pretty line stays one line and quotes what is not plain`() {
        log(.debug, .pretty).debug("up\nand\u{1B}[31m", ["a": "plain", "b": "two words", "c": 7])
        #expect(
            sink.lines == [
                #"2025-01-01T00:00:00.042Z debug   up and [31m a=plain b="two words" c=7"#
            ])
    }

    @Test func `below the level nothing is evaluated`() {
        func never() -> String {
            Issue.record("evaluated")
            return ""
        }
        log(.warning).info(never(), ["a": LogValue(never())])
        log(.warning).debug(never())
        log(.error).error("seen")
        #expect(sink.lines.count == 1)
    }

    @Test func `a rate-limited line is suppressed and counted`() {
        let limited = RateLimitedLog(log(), limit: 2, interval: .seconds(10))
        for _ in 0..<5 { limited.warning("slow") }
        #expect(sink.lines.count == 2)
        time.advance(by: .seconds(10))
        limited.warning("slow")
        limited.error("slower")
        limited.error("slowest")
        #expect(sink.lines.count == 4)
        #expect(sink.lines[2].hasSuffix(#""msg":"slow","suppressed":3}"#))
        #expect(sink.lines[3].hasSuffix(#""msg":"slower"}"#))
    }
}
