// A reader's look at all markers: which buckets may be trusted.

internal import Base
internal import Redis

/// Asks for every bucket's `c` once. Made anew for each survey; loop-confined.
internal final class MarkerSurvey: RedisReplyHandler {
    private var isComplete = Array(repeating: false, count: IndexLimits.buckets)
    private var repliesLeft = IndexLimits.buckets
    private var done: (([Bool]) -> Void)?

    /// Sends the survey; `done` is called once all replies are there, unless the connection ends.
    static func start(
        _ client: RedisClient, _ layout: RedisLayout, _ done: @escaping ([Bool]) -> Void
    ) {
        let survey = MarkerSurvey(done)
        for bucket in 0..<IndexLimits.buckets {
            let error = client.send(
                ["HGET", layout.marker(bucket), "c"], to: survey, tag: UInt64(bucket))
            if error != nil { survey.count() }
        }
    }

    private init(_ done: @escaping ([Bool]) -> Void) { self.done = done }

    func replied(_ reply: RedisReply, tag: UInt64) {
        isComplete[Int(tag)] = reply.text == "1"
        count()
    }

    func failed(_ error: RedisError, tag: UInt64) {
        if case .refused = error { count() } else { done = nil }
    }

    private func count() {
        repliesLeft -= 1
        if repliesLeft == 0 { done?(isComplete) }
    }
}
