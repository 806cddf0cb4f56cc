public import Base
internal import Synchronization

/// A log of things that are either well or not: one line when one goes wrong, one when it is well
/// again, and while it stays wrong a reminder now and then that counts what was left out. Something
/// that goes back and forth is told of so many times an interval and no more.
public final class StateLog: Sendable {
    private struct Standing: Sendable {
        var isWrong = false
        /// Lines about changes in the present interval.
        var changes = 0
        var intervalEnd: MonotonicTime?
        var remindAt: MonotonicTime?
        var suppressed = 0
    }

    private let log: Log
    private let reminder: TimeSpan
    private let changesMax: Int
    private let standings = Mutex<[String: Standing]>([:])

    /// Reminds once in each `reminder`, which is also the interval that has at most `changesMax`
    /// lines about changes of one thing.
    public init(_ log: Log, reminder: TimeSpan = .minutes(10), changesMax: Int = 6) {
        precondition(reminder > .zero && changesMax > 0)
        self.log = log
        self.reminder = reminder
        self.changesMax = changesMax
    }

    /// Something is wrong, or still is. Keys come from closed lists: each is kept for good.
    public func wrong(
        _ key: String, _ level: LogLevel, _ message: @autoclosure () -> String,
        _ fields: @autoclosure () -> Log.Fields = [:]
    ) {
        let now = log.time.monotonic
        let suppressed = standings.withLock { standings -> Int? in
            var standing = standings[key] ?? Standing()
            defer { standings[key] = standing }
            if !standing.isWrong {
                standing.isWrong = true
                return admit(&standing, at: now)
            }
            guard let remindAt = standing.remindAt, now >= remindAt else {
                standing.suppressed += 1
                return nil
            }
            standing.remindAt = now + reminder
            defer { standing.suppressed = 0 }
            return standing.suppressed
        }
        guard let suppressed, level >= log.level else { return }
        log.write(level, message(), fields(), suppressed: suppressed)
    }

    /// Something is well; says so in a line of level info if it was wrong.
    public func right(
        _ key: String, _ message: @autoclosure () -> String,
        _ fields: @autoclosure () -> Log.Fields = [:]
    ) {
        right([key], message(), fields())
    }

    /// The same of what was wrong in one of several ways: one line, whichever it was.
    public func right(
        _ keys: [String], _ message: @autoclosure () -> String,
        _ fields: @autoclosure () -> Log.Fields = [:]
    ) {
        let now = log.time.monotonic
        let suppressed = standings.withLock { standings -> Int? in
            var suppressed: Int?
            for key in keys {
                guard var standing = standings[key], standing.isWrong else { continue }
                standing.isWrong = false
                if let count = admit(&standing, at: now) { suppressed = (suppressed ?? 0) + count }
                standings[key] = standing
            }
            return suppressed
        }
        guard let suppressed, log.level <= .info else { return }
        log.write(.info, message(), fields(), suppressed: suppressed)
    }

    /// Takes note of a change. Returns how many lines were left out before this one, or nil when
    /// this one is left out too.
    private func admit(_ standing: inout Standing, at now: MonotonicTime) -> Int? {
        if standing.intervalEnd.map({ now >= $0 }) ?? true {
            standing.intervalEnd = now + reminder
            standing.changes = 0
        }
        standing.remindAt = now + reminder
        guard standing.changes < changesMax else {
            standing.suppressed += 1
            return nil
        }
        standing.changes += 1
        defer { standing.suppressed = 0 }
        return standing.suppressed
    }
}
