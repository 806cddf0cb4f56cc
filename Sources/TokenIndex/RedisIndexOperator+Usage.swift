// What a person or a device has had lately, for whoever asks why there is no more.

public import Base
internal import Redis

extension RedisIndexOperator {
    /// How many places of each cap a user's messages have now.
    public func usage(
        of caps: [UsageCap], app: String, userID: String, at now: UnixMillis
    ) throws(IndexOperationError) -> [Int] {
        var counts: [Int] = []
        for cap in caps {
            counts.append(try count(layout.places(cap, of: userID, app: app), cap.cap, now))
        }
        return counts
    }

    /// How many slots of a device are taken now.
    public func slots(
        of addressID: String, _ cap: Cap, at now: UnixMillis
    ) throws(IndexOperationError) -> Int {
        try count(layout.slots(of: addressID), cap, now)
    }

    private func count(
        _ key: String, _ cap: Cap, _ now: UnixMillis
    ) throws(IndexOperationError) -> Int {
        let start = (now - cap.span).value
        return try ask(["ZCOUNT", key, "(\(start)", "+inf"]) { Int($0.integer ?? 0) }
    }
}
