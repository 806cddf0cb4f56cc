// Scripts that look at an install as a whole, or erase parts of it.

internal import Base
internal import Redis

internal enum OperatorScripts {
    /// KEYS: install. Returns for each address the fields that `AddressReport` reads; numbers as
    /// text, which keeps all their digits.
    static let describe = RedisScript(
        """
        local raw = redis.call('HGET', KEYS[1], 's')
        if not raw then return {} end
        local S = cmsgpack.unpack(raw)
        local function number(value)
          return value and string.format('%.0f', value) or ''
        end
        local user = S.o and S.o[3] or ''
        local function said(hash, class, e)
          return {hash, class, e.k, number(e.a), e.r, e.o, e.i, e.n}
        end
        local function verdicts(a)
          local list = {}
          if a.vl then list[1] = said(a.vh, 'newest', a.vl) end
          for hash, t in pairs(a.V or {}) do
            if t.p then list[#list + 1] = said(hash, 'certain', t.p) end
            if t.c then list[#list + 1] = said(hash, 'counted', t.c) end
            for _, e in pairs(t.h) do list[#list + 1] = said(hash, 'hold', e) end
          end
          return list
        end
        local out = {}
        for id, a in pairs(S.a) do
          local stored = a.l and redis.call('HGET', KEYS[1], 'p:' .. id) or ''
          out[#out + 1] = {
            id, a.l and '1' or '', user, a.u or '', a.c or '', stored or '', number(a.y),
            verdicts(a), (not a.h) and a.bi or '', a.k or '', number(S.r)}
        end
        return out
        """)

    /// KEYS: install. Returns a plan of everything that is listed, at the present revision.
    static let relist = RedisScript(
        """
        local raw = redis.call('HGET', KEYS[1], 's')
        if not raw then return {'none'} end
        local S = cmsgpack.unpack(raw)
        local out = {'ok', string.format('%.0f', S.r), 1, 0}
        for id, a in pairs(S.a) do
          if a.u then
            local stored = ''
            if a.c == 'a' or a.c == 'q' then
              stored = redis.call('HGET', KEYS[1], 'p:' .. id) or ''
            end
            out[#out + 1] = {id, 1, a.u, a.c, stored, {}, {}}
          end
        end
        return out
        """)

    /// KEYS: install. ARGV: address id. Returns the user it is listed under, or nothing, and the
    /// revision.
    static let owner = RedisScript(
        """
        local raw = redis.call('HGET', KEYS[1], 's')
        if not raw then return {'', '0'} end
        local S = cmsgpack.unpack(raw)
        local a = S.a[ARGV[1]]
        return {a and a.u or '', string.format('%.0f', S.r)}
        """)

    /// KEYS: install. ARGV: now, span, user, as of when, address ids. Takes the user and those
    /// addresses out of the record, whose positions stay, and leaves what was registered since, or
    /// is another user's by now; returns a plan of what else has to go.
    static let erase = RedisScript(
        IndexScripts.prelude + """
            local user, asof = ARGV[3], tonumber(ARGV[4])
            local mine, since = S.o and S.o[3] == user, false
            for _, a in pairs(S.a) do
              if a.l and a.g > asof then since = true end
            end
            for n = 5, #ARGV do
              local id = ARGV[n]
              local a = S.a[id]
              if a and (not a.l or (mine and a.g <= asof)) then
                if a.k then add(a.s, a.k) end
                if a.u then add(a.x, a.u) end
                a.l, a.h, a.k, a.v, a.bg, a.bi, a.w = false, false, nil, nil, nil, nil, now
                a.u, a.c, a.y = nil, nil, nil
                a.V = a.V and {[''] = a.V['']}
                if a.vh ~= '' then a.vl, a.vh = nil, nil end
                redis.call('HDEL', key, 'p:' .. id)
              end
            end
            if mine and not since then S.o[3] = false end
            return plan('')
            """)

    /// KEYS: slot. ARGV: address id. Nobody is to find out that it had the token.
    static let drop = RedisScript(
        """
        if redis.call('HGET', KEYS[1], 'a') == ARGV[1] then redis.call('DEL', KEYS[1]) end
        return 1
        """)

    /// KEYS: install. ARGV: now, span, revision, user. Everything that the plan asked for is
    /// done, and nothing of the user is left.
    static let erased = RedisScript(
        IndexScripts.prelude + """
            for _, a in pairs(S.a) do
              remove(a.x, ARGV[4])
              if S.r == tonumber(ARGV[3]) then a.x, a.s, a.n = {}, {}, nil end
            end
            redis.call('HSET', key, 's', cmsgpack.pack(S))
            return 1
            """)
}

extension AddressReport {
    /// Reads one element of the reply to `describe`; nil when it is not one.
    internal init?(_ reply: RedisReply) {
        let fields = reply.elements
        guard fields.count == 11, let id = fields[0].text.flatMap({ AddressID($0) }) else {
            return nil
        }
        func text(_ index: Int) -> String? { fields[index].text.flatMap { $0.isEmpty ? nil : $0 } }
        var address: DeviceAddress?
        if text(1) != nil {
            let stored = fields[5].bytes
            address = Array(id.text.utf8).withUnsafeBytes {
                DeviceAddress(id: $0, stored: stored)
            }
        }
        let displacedBy = text(8).flatMap { AddressID($0) }
        let verdicts = VerdictBook(fields[7])
        self.init(
            id: id, userID: text(2), address: address,
            standing: Self.standing(address, verdicts, isDisplaced: displacedBy != nil),
            verdicts: verdicts, displacedBy: displacedBy,
            lastSeenAt: fields[6].integer.map { UnixMillis($0) })
    }

    /// By the rules, not by what is listed: that is the same unless somebody tampered with it.
    private static func standing(
        _ address: DeviceAddress?, _ verdicts: VerdictBook, isDisplaced: Bool
    ) -> AddressStanding {
        if isDisplaced { return .displaced }
        let blocker = address.flatMap { verdicts.blocker(of: $0) }
        return blocker.flatMap { AddressStanding($0.entry.kind) } ?? .active
    }
}

extension VerdictBook {
    /// Reads what `describe` lists; where the last record stands is not part of it.
    fileprivate init(_ reply: RedisReply) {
        self.init()
        reply.forEachElement { element in
            let fields = element.elements
            guard fields.count == 8, let hash = fields[0].text, let entry = Entry(fields) else {
                return
            }
            switch fields[1].text {
            case "newest":
                newest = Newest(tokenHash: hash.isEmpty ? nil : hash, entry: entry)
            case "certain": tokens[hash, default: Token()].certain = entry
            case "counted": tokens[hash, default: Token()].counted = entry
            default: tokens[hash, default: Token()].holds[entry.fuseID ?? ""] = entry
            }
        }
    }
}

extension VerdictBook.Entry {
    fileprivate init?(_ fields: [RedisReply]) {
        func text(_ index: Int) -> String? { fields[index].text.flatMap { $0.isEmpty ? nil : $0 } }
        guard let kind = text(2).flatMap(TokenVerdict.init(rawValue:)) else { return nil }
        self.init(
            kind: kind, asOf: UnixMillis(fields[3].integer ?? 0), reason: text(4) ?? "",
            held: text(5).flatMap(TokenVerdict.init(rawValue:)), fuseID: text(6),
            fuse: text(7).flatMap { FuseName(text: $0) })
    }
}
