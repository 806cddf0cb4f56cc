// What an install script leaves to be done in other buckets.

internal import Base
internal import Redis

internal struct IndexPlan {
    struct Entry {
        var addressID: String
        /// Under whom the address is to be listed.
        var userID: String?
        var stored: [UInt8]
        /// From whom it is to be unlinked, first.
        var formerUsers: [String]
        /// The token slots it left.
        var leftSlots: [String]
    }

    var revision: String
    /// Whether the address the script was run for is known to hold its token.
    var isHeld: Bool
    /// Whether the install's record has to be told when everything is done.
    var needsClean: Bool
    var entries: [Entry]

    /// Reads a script's reply; nil when it is a word and not a plan.
    init?(_ reply: RedisReply) {
        let parts = reply.elements
        guard parts.count >= 4, parts[0].text == "ok", let revision = parts[1].text else {
            return nil
        }
        self.revision = revision
        isHeld = parts[2].integer == 1
        needsClean = parts[3].integer == 1
        entries = parts[4...].compactMap { part in
            let fields = part.elements
            guard fields.count == 6, let id = fields[0].text else { return nil }
            return Entry(
                addressID: id, userID: fields[1].integer == 1 ? fields[2].text : nil,
                stored: Array(fields[3].bytes),
                formerUsers: fields[4].elements.compactMap(\.text),
                leftSlots: fields[5].elements.compactMap(\.text))
        }
    }
}
