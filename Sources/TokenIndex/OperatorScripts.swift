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
        local out = {}
        for id, a in pairs(S.a) do
          local stored = a.l and redis.call('HGET', KEYS[1], 'p:' .. id) or ''
          out[#out + 1] = {
            id, a.l and '1' or '', user, a.u or '', a.c or '', stored or '', number(a.y),
            a.vk or '', a.vr or '', number(a.va), a.vh or '', a.vo or '', a.vi or '',
            (not a.h) and a.bi or '', a.k or '', number(S.r)}
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

    /// KEYS: install. ARGV: now, span, user, address ids. Takes the user and those addresses out
    /// of the record, whose positions stay; returns a plan of what else has to go.
    static let erase = RedisScript(
        IndexScripts.prelude + """
            local user = ARGV[3]
            for n = 4, #ARGV do
              local id = ARGV[n]
              local a = S.a[id]
              if a then
                if a.k then add(a.s, a.k) end
                if a.u then add(a.x, a.u) end
                a.l, a.h, a.k, a.v, a.bg, a.bi, a.w = false, false, nil, nil, nil, nil, now
                a.u, a.c, a.vh, a.y = nil, nil, '', nil
                redis.call('HDEL', key, 'p:' .. id)
              end
            end
            if S.o and S.o[3] == user then S.o[3] = false end
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
        guard fields.count == 16, let id = fields[0].text.flatMap({ AddressID($0) }) else {
            return nil
        }
        func text(_ index: Int) -> String? { fields[index].text.flatMap { $0.isEmpty ? nil : $0 } }
        func time(_ index: Int) -> UnixMillis? { fields[index].integer.map { UnixMillis($0) } }
        self.id = id
        userID = text(2)
        lastSeenAt = time(6)
        displacedBy = text(13).flatMap { AddressID($0) }
        verdict = text(7).flatMap(TokenVerdict.init(rawValue:)).map { kind in
            Verdict(
                kind: kind, reason: text(8) ?? "", asOf: time(9) ?? UnixMillis(0),
                tokenHash: text(10), held: text(11).flatMap(TokenVerdict.init(rawValue:)),
                fuseID: text(12))
        }
        if text(1) != nil {
            let stored = fields[5].bytes
            address = Array(id.text.utf8).withUnsafeBytes {
                DeviceAddress(id: $0, stored: stored)
            }
        }
        standing = Self.standing(address, verdict, isDisplaced: displacedBy != nil)
    }

    /// By the rules, not by what is listed: that is the same unless somebody tampered with it.
    private static func standing(
        _ address: DeviceAddress?, _ verdict: Verdict?, isDisplaced: Bool
    ) -> AddressStanding {
        if isDisplaced { return .displaced }
        guard let address, let verdict, let standing = AddressStanding(verdict.kind),
            address.registeredAt <= verdict.asOf,
            verdict.tokenHash == nil || verdict.tokenHash == address.tokenHash
        else { return .active }
        return standing
    }
}
