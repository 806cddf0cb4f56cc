// What stands beside a committed offset: which attempt wrote it, what is finished above it, and who
// it was. Brokers keep up to 4096 bytes of text with each offset.

/// The metadata of one committed offset: `b1 <attempt> <map> <name>`.
struct CommitNote: Equatable {
    /// Tells one commit of a process from all others, so that one whose answer was lost can be
    /// recognised; empty where nobody asks.
    var attempt = ""
    /// Offsets that are finished above the committed one.
    var finished = OffsetRuns()
    /// Whoever wrote it, for people.
    var name = ""

    private static let version = "b1"

    /// The text for a commit at `offset`. A map that would be too long is left out: the note is
    /// still true without it.
    func text(at offset: Int64) -> String {
        let map = OffsetMap.encode(finished, from: offset, limit: Limits.offsetMapBytes) ?? ""
        let name = String(name.unicodeScalars.prefix(Limits.commitNameBytes).filter(\.isASCII))
        return "\(Self.version) \(attempt) \(map) \(name)"
    }

    /// The note of a commit at `offset`; nil when another program wrote it, or nobody.
    init?(_ text: String, at offset: Int64) {
        let fields = text.split(
            separator: " ", maxSplits: 3, omittingEmptySubsequences: false)
        guard fields.count == 4, fields[0] == Self.version,
            let finished = OffsetMap.decode(fields[2], from: offset)
        else { return nil }
        self.init(attempt: String(fields[1]), finished: finished, name: String(fields[3]))
    }

    init(attempt: String = "", finished: OffsetRuns = OffsetRuns(), name: String = "") {
        self.attempt = attempt
        self.finished = finished
        self.name = name
    }
}
