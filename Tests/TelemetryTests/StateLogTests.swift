import Base
import Telemetry
import Testing

@Suite struct `A log of states` {
    private let sink = CollectingSink()
    private let time = ManualTime(wall: UnixMillis(1_735_689_600_000))

    private func log(_ level: LogLevel = .info) -> StateLog {
        StateLog(
            Log(level: level, format: .json, sink: sink, time: time), reminder: .minutes(10),
            changesMax: 4)
    }

    private func levels() -> [String] {
        sink.lines.map { $0.contains(#""level":"error""#) ? "error" : "info" }
    }

    @Test func `has one line when something goes wrong and one when it is well again`() {
        let states = log()
        states.right("a", "was never wrong")
        for _ in 0..<1000 { states.wrong("a", .error, "broken") }
        for _ in 0..<1000 { states.right("a", "works") }
        #expect(levels() == ["error", "info"])
        #expect(sink.lines[1].hasSuffix(#""msg":"works","suppressed":999}"#))
    }

    @Test func `keeps things apart`() {
        let states = log()
        states.wrong("a", .error, "broken")
        states.wrong("b", .error, "broken")
        states.right("b", "works")
        states.wrong("a", .error, "broken")
        #expect(levels() == ["error", "error", "info"])
    }

    @Test func `has one line when what was wrong in several ways is well again`() {
        let states = log()
        states.wrong("a", .error, "broken")
        states.wrong("b", .error, "broken otherwise")
        states.wrong("b", .error, "broken otherwise")
        states.right(["a", "b", "c"], "works")
        #expect(levels() == ["error", "error", "info"])
        #expect(sink.lines[2].hasSuffix(#""msg":"works","suppressed":1}"#))
        states.right(["a", "b", "c"], "works")
        #expect(sink.lines.count == 3)
    }

    @Test func `reminds of what stays wrong`() {
        let states = log()
        for _ in 0..<31 {
            states.wrong("a", .error, "broken")
            time.advance(by: .minutes(1))
        }
        #expect(sink.lines.count == 4)
        #expect(sink.lines[3].hasSuffix(#""suppressed":9}"#))
    }

    @Test func `tells of what goes back and forth so many times an interval`() {
        let states = log()
        for _ in 0..<1000 {
            states.wrong("a", .error, "broken")
            states.right("a", "works")
        }
        #expect(sink.lines.count == 4)
        time.advance(by: .minutes(10))
        states.wrong("a", .error, "broken")
        #expect(sink.lines.count == 5 && sink.lines[4].hasSuffix(#""suppressed":1996}"#))
    }

    @Test func `evaluates nothing that is below its level`() {
        let states = log(.error)
        states.wrong("a", .error, "broken")
        func never() -> String {
            Issue.record("evaluated")
            return ""
        }
        states.right("a", never())
        states.wrong("b", .warning, never())
        #expect(sink.lines.count == 1)
    }
}
