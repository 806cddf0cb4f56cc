internal import Base
internal import Kafka

extension TopicReader {
    /// How long the brokers may say nothing at all.
    private static let silence = TimeSpan.seconds(30)

    /// Reads every partition to where its end was at some time since the start. `go` is told how
    /// many records came so far, and ends the reading with false.
    ///
    /// - Returns: whether the ends were reached.
    /// - Throws: when the brokers say nothing for half a minute, with what they said last.
    func readWhole(
        atOnce turn: Int = 10_000, _ body: (borrowing KafkaRecord) -> Void,
        while go: (_ count: Int) throws(Failure) -> Bool
    ) throws(Failure) -> Bool {
        var heardAt = SystemTime.shared.monotonic
        var fault: KafkaError?
        var count = 0
        onFault = { fault = $1 }
        defer { onFault = nil }
        while !hasReachedEveryEnd {
            let got = read(max: turn, timeout: .milliseconds(100), body)
            let now = SystemTime.shared.monotonic
            if got > 0 { heardAt = now }
            guard now - heardAt < Self.silence else {
                let reason = fault.map { ": \($0)" } ?? ""
                throw .failed("kafka: the topics cannot be read to their end\(reason)")
            }
            count += got
            guard try go(count) else { return false }
        }
        return true
    }
}
