// What an install script leaves to be done in other buckets.

internal import Base
internal import Redis

internal struct IndexPlan {
    struct Entry {
        var addressID: String
        /// Under whom the address is to be listed.
        var userID: String?
        /// With which standing; nil only when it is not listed.
        var standing: AddressStanding?
        /// The address; empty when its standing keeps it from being handed out.
        var stored: [UInt8]
        /// The stored address; nil when there is none.
        var address: DeviceAddress? {
            Array(addressID.utf8).withUnsafeBytes { id in
                stored.withUnsafeBytes { DeviceAddress(id: id, stored: $0) }
            }
        }

        /// From whom it is to be unlinked, first.
        var formerUsers: [String]
        /// The token slots it left.
        var leftSlots: [String]
    }

    /// `ok` or `outdated`; after a verdict `judged` and what is so now.
    var word: String
    var revision: String
    /// Whether the address the script was run for is known to hold its token.
    var isHeld: Bool
    /// Whether the install's record has to be told when everything is done.
    var needsClean: Bool
    var entries: [Entry]

    /// What is so after a verdict.
    enum JudgedWord: Substring {
        /// It keeps the address from being sent to.
        case blocks
        /// A fuse of the record's name holds a token of the address.
        case held
        /// The record's own quarantine holds.
        case holds
        /// The record alone would tell another story than all that are known.
        case overtaken
    }

    func says(_ judged: JudgedWord) -> Bool {
        word.split(separator: " ").contains(judged.rawValue)
    }

    /// Reads a script's reply; nil when it is a word and not a plan.
    init?(_ reply: RedisReply) {
        let parts = reply.elements
        guard parts.count >= 4, let word = parts[0].text, let revision = parts[1].text else {
            return nil
        }
        self.word = word
        self.revision = revision
        isHeld = parts[2].integer == 1
        needsClean = parts[3].integer == 1
        entries = parts[4...].compactMap { part in
            let fields = part.elements
            guard fields.count == 7, let id = fields[0].text else { return nil }
            return Entry(
                addressID: id, userID: fields[1].integer == 1 ? fields[2].text : nil,
                standing: fields[3].bytes.first.flatMap(AddressStanding.init(code:)),
                stored: Array(fields[4].bytes),
                formerUsers: fields[5].elements.compactMap(\.text),
                leftSlots: fields[6].elements.compactMap(\.text))
        }
    }
}

/// One script of what a plan asks for.
internal struct PlanStep {
    var script: RedisScript
    var keys: [String]
    var arguments: [[UInt8]]
    /// The key of the user whose entry it is about.
    var userKey: String?

    /// How long what was left or unlinked is remembered, as an argument.
    static let span = Array(String(IndexLimits.tombstoneSpan.millis).utf8)
}

extension IndexPlan {
    /// What has to be done outside the install's bucket, in this order. Each step can be repeated.
    func steps(app: String, layout: RedisLayout, entriesPerKey: Int) -> [PlanStep] {
        func userKeys(_ user: String) -> [String] {
            [
                layout.user(user, app: app), layout.unlinked(user, app: app),
                layout.further(user, app: app),
            ]
        }
        let revision = Array(revision.utf8)
        var steps: [PlanStep] = []
        for entry in entries {
            let id = Array(entry.addressID.utf8)
            for user in entry.formerUsers {
                steps.append(
                    PlanStep(
                        script: IndexScripts.unlink, keys: userKeys(user),
                        arguments: [id, revision, PlanStep.span],
                        userKey: layout.user(user, app: app)))
            }
        }
        for entry in entries {
            for slot in entry.leftSlots {
                steps.append(
                    PlanStep(
                        script: IndexScripts.leave, keys: [layout.slot(slot)],
                        arguments: [Array(entry.addressID.utf8), PlanStep.span]))
            }
        }
        // Nobody is given a token while another entry of the plan still has it.
        for isGiven in [false, true] {
            for entry in entries where (entry.standing == .active) == isGiven {
                guard let user = entry.userID, let standing = entry.standing else { continue }
                let value = UserEntry.encode(standing, Self.stored(entry, for: user))
                steps.append(
                    PlanStep(
                        script: IndexScripts.link, keys: userKeys(user),
                        arguments: [
                            Array(entry.addressID.utf8), revision, value,
                            Array(String(entriesPerKey).utf8),
                        ], userKey: layout.user(user, app: app)))
            }
        }
        return steps
    }

    /// The stored address names the user of its own record; under another user it names that one.
    private static func stored(_ entry: Entry, for userID: String) -> [UInt8] {
        guard let address = entry.address else { return entry.stored }
        return address.with(userID: userID).withStored { Array($0) }
    }
}
