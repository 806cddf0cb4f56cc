// A reader's look at all markers: which buckets may be trusted.

internal import Base
internal import Redis

/// Asks for every bucket's `c` once. Made anew for each survey; loop-confined.
internal final class MarkerSurvey: RedisReplyHandler {
    private var markers: [MarkerTrust?] = Array(repeating: nil, count: IndexLimits.buckets)
    private var repliesLeft = IndexLimits.buckets
    private var error: RedisError?
    private let done: ([MarkerTrust?], RedisError?) -> Void

    /// Sends the survey; `done` is called once every bucket was answered or failed, with the first
    /// error, and perhaps within this call.
    static func start(
        _ client: RedisClient, _ layout: RedisLayout,
        _ done: @escaping ([MarkerTrust?], RedisError?) -> Void
    ) {
        let survey = MarkerSurvey(done)
        for bucket in 0..<IndexLimits.buckets {
            let key = layout.marker(bucket)
            let error = client.send(
                ["HGET", key, "c"], key: key, to: survey, tag: UInt64(bucket))
            if let error { survey.failed(error, tag: UInt64(bucket)) }
        }
    }

    private init(_ done: @escaping ([MarkerTrust?], RedisError?) -> Void) { self.done = done }

    func replied(_ reply: RedisReply, tag: UInt64) {
        markers[Int(tag)] = MarkerTrust(reply.bytes)
        count()
    }

    func failed(_ error: RedisError, tag: UInt64) {
        self.error = self.error ?? error
        count()
    }

    private func count() {
        repliesLeft -= 1
        if repliesLeft == 0 { done(markers, error) }
    }
}
