// The field `c` of a marker: that a bucket may be trusted, and since when and for what moment.

internal import Base

/// The stamp of the last renewal and the moment as of which the bucket shows the topics.
internal struct MarkerTrust: CustomStringConvertible {
    /// The stamp, about the writer's time in ms.
    var stamp: Int64
    /// All records up to this moment are shown.
    var asOf: UnixMillis

    init(stamp: Int64, asOf: UnixMillis) {
        self.stamp = stamp
        self.asOf = asOf
    }

    init?(_ text: String) {
        var text = text
        guard let trust = text.withUTF8({ MarkerTrust(UnsafeRawBufferPointer($0)) }) else {
            return nil
        }
        self = trust
    }

    /// Reads `<stamp>:<as of>`; nil when it is anything else. Called for every look-up.
    init?(_ bytes: UnsafeRawBufferPointer) {
        var numbers: (Int64, Int64) = (0, 0)
        var digits = (0, 0)
        var isSecond = false
        for byte in bytes {
            if byte == 0x3A {
                guard !isSecond else { return nil }
                isSecond = true
                continue
            }
            guard (0x30...0x39).contains(byte) else { return nil }
            if isSecond {
                numbers.1 = numbers.1 &* 10 &+ Int64(byte - 0x30)
                digits.1 += 1
            } else {
                numbers.0 = numbers.0 &* 10 &+ Int64(byte - 0x30)
                digits.0 += 1
            }
        }
        guard (1...18).contains(digits.0), (1...18).contains(digits.1) else { return nil }
        self.init(stamp: numbers.0, asOf: UnixMillis(numbers.1))
    }

    var description: String { "\(stamp):\(asOf.value)" }
}

/// What a reader takes for trustworthy.
///
/// After its connection ended, the server that answers may be another one, with older data: then
/// only a renewal counts that came after everything seen before. A marker far behind the others is
/// one whose server lost the last writes and whose writer has not noticed yet.
internal struct TrustRule {
    /// How far the topics may be ahead of what is shown.
    let lagMax: TimeSpan
    /// Stamps up to this one say nothing; `max` while nothing is known.
    private var knownStamp = Int64.max
    private var newestStamp: Int64 = 0

    /// How far behind the newest marker one may be; markers are renewed every second.
    private static let behindMax: Int64 = 5_000

    init(lagMax: TimeSpan) { self.lagMax = lagMax }

    /// Nothing seen so far proves anything any more.
    mutating func connectionEnded() { knownStamp = .max }

    /// Takes in a survey of all markers. The first after an end only sets what has to be surpassed.
    mutating func surveyed(_ markers: [MarkerTrust?]) {
        for case let marker? in markers { newestStamp = max(newestStamp, marker.stamp) }
        if knownStamp == .max { knownStamp = newestStamp }
    }

    /// Whether an answer from a bucket with that marker may be believed.
    mutating func trusts(_ marker: MarkerTrust?, at now: UnixMillis) -> Bool {
        guard let marker, marker.stamp > knownStamp else { return false }
        newestStamp = max(newestStamp, marker.stamp)
        return newestStamp - marker.stamp <= Self.behindMax && now - marker.asOf <= lagMax
    }

    /// What readiness says of an index that is further behind than that.
    static func lagText(_ lagMax: TimeSpan) -> String {
        "it shows the topics as they were over \(lagMax.millis / 1_000) s ago"
    }

    /// Whether the topics are too far ahead of a bucket.
    func lags(_ marker: MarkerTrust?, at now: UnixMillis) -> Bool {
        marker.map { now - $0.asOf > lagMax } ?? false
    }
}
