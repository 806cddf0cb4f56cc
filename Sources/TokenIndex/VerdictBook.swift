// What was said of the tokens of one address. Pure: a fold over the records of its key in the
// topic's order, whatever is registered meanwhile. `VerdictScripts` is the same in Redis.
//
// Verdicts are kept for each token, for a late one about a former token says nothing of the present
// one. And of one token three things are kept apart, so that an operator's word reaches only what
// it was meant for:
//
// - what is certain: the token's ordinary death, `stale`, `forget`, what an operator discarded. Of
//   two the one that reaches further counts; nothing lifts it but a new registration.
// - what a misconfiguration can cause and a fuse counted.
// - what fuses hold back, each under its id. A release of that fuse lifts it, on whichever side of
//   it the release stands in the topic.

internal import Base

internal struct VerdictBook {
    struct Entry: Equatable {
        var kind: TokenVerdict
        var asOf: UnixMillis
        var reason: String
        var held: TokenVerdict?
        var fuseID: String?
        /// The fuse that it belongs to; only of what a misconfiguration can cause.
        var fuse: FuseName?

    }

    struct Token: Equatable {
        var certain: Entry?
        var counted: Entry?
        /// By the id of the fuse; empty for a quarantine that names none. `release` for one that is
        /// lifted, or settled otherwise.
        var holds: [String: Entry] = [:]
    }

    /// The record that was read last: after compaction the only one that is left.
    struct Newest: Equatable {
        var tokenHash: String?
        var entry: Entry
    }

    /// Where the last record stands.
    var position: TopicPosition?
    var newest: Newest?
    /// By the token's hash; empty for what is said of any token.
    var tokens: [String: Token] = [:]

    /// Tokens of one address of which verdicts are kept. Those whose verdicts are the oldest go
    /// first: sent to once more, such a token is judged once more.
    static let tokensMax = 8
    /// Fuses that hold one token, or did.
    static let holdsMax = 4

    /// Takes a record in; false when it is older than the last one. One that was not read but made
    /// here, `isRead` false, stands where the record stands that it was made of.
    mutating func take(
        _ record: InvalidationRecord, at position: TopicPosition, isRead: Bool = true
    ) -> Bool {
        if let last = self.position, position.precedes(last) { return false }
        self.position = position
        let entry = Entry(record)
        if isRead { newest = Newest(tokenHash: record.tokenHash, entry: entry) }
        let hash = record.tokenHash ?? ""
        if record.verdict == .forget, hash.isEmpty { forget(upTo: record.asOf) }
        var token = tokens[hash] ?? Token()
        token.take(entry)
        tokens[hash] = token
        bound()
        return true
    }

    /// Drops what blocks nothing that is not to be forgotten as well. What is settled stays: it keeps
    /// late records of its fuse from holding anything.
    private mutating func forget(upTo asOf: UnixMillis) {
        for (hash, token) in tokens {
            var token = token
            if let certain = token.certain, certain.asOf <= asOf { token.certain = nil }
            if let counted = token.counted, counted.asOf <= asOf { token.counted = nil }
            token.holds = token.holds.filter { $0.value.kind == .release || $0.value.asOf > asOf }
            tokens[hash] = token == Token() ? nil : token
        }
    }

    private mutating func bound() {
        let named = tokens.filter { !$0.key.isEmpty }
        guard named.count > Self.tokensMax else { return }
        let oldest = named.min {
            ($0.value.reach.value, $0.key) < ($1.value.reach.value, $1.key)
        }
        if let oldest { tokens[oldest.key] = nil }
    }

    /// Forgets what would tell one token from another.
    mutating func eraseTokens() {
        tokens = tokens.filter { $0.key.isEmpty }
        if newest?.tokenHash != nil { newest = nil }
    }
}

extension VerdictBook.Entry {
    init(_ record: InvalidationRecord) {
        self.init(
            kind: record.verdict, asOf: record.asOf, reason: record.reason, held: record.held,
            fuseID: record.fuseID, fuse: record.fuseName)
    }
}

// MARK: - What it means

extension VerdictBook {
    /// A verdict with the token that it names, empty for any.
    typealias Found = (hash: String, entry: Entry)

    /// What keeps a registration from being sent to: what is certain before what is not.
    func blocker(of address: DeviceAddress) -> Found? {
        guard !tokens.isEmpty else { return nil }
        var best: (rank: Int, found: Found)?
        func offer(_ entry: Entry?, _ hash: String, _ rank: Int) {
            guard let entry, address.registeredAt <= entry.asOf else { return }
            if let best {
                guard rank <= best.rank else { return }
                if rank == best.rank, entry.asOf <= best.found.entry.asOf { return }
            }
            best = (rank, (hash, entry))
        }
        for hash in [address.tokenHash, ""] {
            guard let token = tokens[hash] else { continue }
            offer(token.certain, hash, 0)
            offer(token.counted, hash, 1)
            for id in token.holds.keys.sorted() where token.holds[id]?.kind == .quarantine {
                offer(token.holds[id], hash, 2)
            }
        }
        return best?.found
    }

    /// Whether a record that was just taken in keeps a registration from being sent to.
    func blocks(_ record: InvalidationRecord, _ address: DeviceAddress) -> Bool {
        guard record.tokenHash == nil || record.tokenHash == address.tokenHash,
            let token = tokens[record.tokenHash ?? ""]
        else { return false }
        var entries = [token.certain]
        if record.isDoubtful {
            entries = [token.counted]
            entries += token.holds.values.filter {
                $0.kind == .quarantine && $0.fuse == record.fuseName
            }
        }
        return entries.contains { $0.map { address.registeredAt <= $0.asOf } ?? false }
    }

    /// What fuses of that name hold, in the order of tokens and fuse ids.
    func held(by name: FuseName) -> [Found] {
        tokens.sorted { $0.key < $1.key }.flatMap { hash, token in
            token.holds.sorted { $0.key < $1.key }.compactMap { _, entry in
                entry.kind == .quarantine && entry.fuse == name ? (hash, entry) : nil
            }
        }
    }

    /// What was counted for a fuse of that name and is not held, in the order of tokens.
    func counted(by name: FuseName) -> [Found] {
        tokens.sorted { $0.key < $1.key }.compactMap { hash, token in
            token.counted.flatMap { $0.fuse == name ? (hash, $0) : nil }
        }
    }

    /// The fuses that count or hold any of its tokens, in no order.
    var fuses: [FuseName] {
        let entries = tokens.values.flatMap { [$0.counted].compactMap(\.self) + $0.holds.values }
        return Array(Set(entries.compactMap(\.fuse)))
    }

    /// Whether a fuse counts or holds what reaches further than that.
    func isDoubtful(after asOf: UnixMillis) -> Bool {
        tokens.values.contains { token in
            let entries = [token.counted].compactMap(\.self) + token.holds.values
            return entries.contains { $0.kind != .release && $0.asOf > asOf }
        }
    }

    /// What makes it forgotten; nil when nothing does.
    var forgotten: Entry? { tokens[""]?.certain.flatMap { $0.kind == .forget ? $0 : nil } }

    /// Whether the quarantine of a record holds.
    func holds(_ record: InvalidationRecord) -> Bool {
        tokens[record.tokenHash ?? ""]?.holds[record.fuseID ?? ""]?.kind == .quarantine
    }

    /// What has to be said again because the record that was read last, alone, would tell another
    /// story of a registration: a compacted topic keeps only that one. nil when it says it.
    func overtaken(of address: DeviceAddress) -> Found? {
        guard let newest else { return nil }
        let entry = newest.entry
        let isMeant = newest.tokenHash == nil || newest.tokenHash == address.tokenHash
        let blocksAlone = entry.kind != .release && isMeant && address.registeredAt <= entry.asOf
        let found = blocker(of: address)
        guard found?.entry.kind != (blocksAlone ? entry.kind : nil) else { return nil }
        if let found { return found }
        let hash = newest.tokenHash ?? ""
        return tokens[hash]?.holds[entry.fuseID ?? ""].map { (hash, $0) }
    }

    /// What to tell somebody who asks about an address.
    func shown(of address: DeviceAddress?) -> Found? {
        if let address, let found = blocker(of: address) { return found }
        return newest.map { ($0.tokenHash ?? "", $0.entry) }
    }
}

// MARK: - One token

extension VerdictBook.Token {
    /// How far the latest of its verdicts reaches.
    fileprivate var reach: UnixMillis {
        ([certain, counted].compactMap { $0?.asOf } + holds.values.map(\.asOf)).max()
            ?? UnixMillis(0)
    }

    fileprivate mutating func take(_ entry: VerdictBook.Entry) {
        let id = entry.fuseID ?? ""
        switch entry.kind {
        case .release: settle(id, entry)
        case .quarantine: hold(id, entry)
        case _ where entry.fuse != nil && entry.fuseID == nil: count(entry)
        default:
            keep(entry)
            if entry.fuseID != nil { settle(id, entry) }
        }
        let named = holds.filter { !$0.key.isEmpty }
        guard named.count > VerdictBook.holdsMax else { return }
        // What is settled is forgotten before what holds.
        let oldest = named.min { left, right in
            let (left, right) = (Rank(left), Rank(right))
            return (left.holds, left.asOf, left.id) < (right.holds, right.asOf, right.id)
        }
        if let oldest { holds[oldest.key] = nil }
    }

    private struct Rank {
        let holds: Int
        let asOf: Int64
        let id: String

        init(_ hold: (key: String, value: VerdictBook.Entry)) {
            holds = hold.value.kind == .quarantine ? 1 : 0
            asOf = hold.value.asOf.value
            id = hold.key
        }
    }

    private mutating func keep(_ entry: VerdictBook.Entry) {
        if let certain, entry.asOf < certain.asOf { return }
        certain = entry
    }

    private mutating func settle(_ id: String, _ entry: VerdictBook.Entry) {
        // The record that says it is held may never have been written.
        if entry.kind == .release, let counted, counted.fuse == entry.fuse,
            counted.asOf <= entry.asOf
        {
            self.counted = nil
        }
        var entry = entry
        entry.kind = .release
        holds[id] = entry
    }

    private mutating func hold(_ id: String, _ entry: VerdictBook.Entry) {
        var entry = entry
        let former = holds[id]
        let isSettled = former?.kind == .release && !id.isEmpty
        // What was counted before is what the fuse holds.
        if let counted, counted.fuse == entry.fuse, !isSettled || counted.asOf <= entry.asOf {
            if !isSettled { entry.asOf = max(entry.asOf, counted.asOf) }
            self.counted = nil
        }
        guard !isSettled else { return }
        if let former, former.kind == .quarantine { entry.asOf = max(entry.asOf, former.asOf) }
        holds[id] = entry
    }

    private mutating func count(_ entry: VerdictBook.Entry) {
        var isHeld = false
        for (id, hold) in holds where hold.kind == .quarantine && hold.fuse == entry.fuse {
            holds[id]?.asOf = max(hold.asOf, entry.asOf)
            isHeld = true
        }
        guard !isHeld else { return }
        var entry = entry
        if let counted {
            if counted.fuse == entry.fuse {
                entry.asOf = max(entry.asOf, counted.asOf)
            } else {
                // It passed its own fuse.
                keep(counted)
            }
        }
        counted = entry
    }
}

extension InvalidationRecord {
    /// Whether a fuse has a say in it: it is counted, held or freed.
    internal var isDoubtful: Bool {
        verdict == .quarantine || verdict == .release || (fuseName != nil && fuseID == nil)
    }
}
