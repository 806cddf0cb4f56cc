// The steps of a change as scripts. Each touches the keys of one bucket, can be repeated without
// harm, and leaves what still has to be done elsewhere written down in the record it changed.
//
// The state of an install is packed into one field: r revision, o owner {time, address id, user},
// a addresses. Of an address: p f q partition, offset and time of the last record, e newest time,
// l live, v version, g registered_at, k token slot, h held, bg bi bound claim, vp vf vq vk va vh
// verdict, u user it is listed under, x users it has to be unlinked from, s slots it left, n it
// has to be listed anew, w not live since. `InstallState` is the same in Swift.

internal import Redis

internal enum IndexScripts {
    /// ARGV: now, span, id, partition, offset, time, live, version, registered_at, slot, has user,
    /// user, stored address, addresses per install. Returns a plan, `full` or `outdated`.
    static let register = RedisScript(
        prelude + """
            local id, live = ARGV[3], ARGV[7] == '1'
            local a = S.a[id]
            if not a then
              local n = 0
              for _ in pairs(S.a) do n = n + 1 end
              if n >= tonumber(ARGV[14]) then return {'full'} end
              a = {x = {}, s = {}}
            end
            local p, f, q = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
            if a.f and older(p, f, q, a.p, a.f, a.q) then return {'outdated'} end
            a.p, a.f, a.q = p, f, q
            S.a[id] = a
            if live then
              local version, slot = tonumber(ARGV[8]), ARGV[10]
              if a.l and version < a.v then
                save()
                return {'outdated'}
              end
              if a.k ~= slot then
                if a.k then add(a.s, a.k) end
                remove(a.s, slot)
                a.h, a.bg, a.bi = false, nil, nil
              end
              a.l, a.v, a.g, a.k, a.w = true, version, tonumber(ARGV[9]), slot, nil
              a.e = math.max(a.e or q, q)
              local o = S.o
              if not o or not less(a.e, id, o[1], o[2]) then
                S.o = {a.e, id, ARGV[11] == '1' and ARGV[12] or false}
              end
              redis.call('HSET', key, 'p:' .. id, ARGV[13])
            else
              if a.k then add(a.s, a.k) end
              a.l, a.h, a.k, a.v, a.bg, a.bi, a.w = false, false, nil, nil, nil, nil, now
              redis.call('HDEL', key, 'p:' .. id)
            end
            return plan(id)
            """)

    /// ARGV: now, span, id, slot, the claim's registered_at and address id.
    static let settle = RedisScript(
        prelude + """
            local id, slot, cg, ci = ARGV[3], ARGV[4], tonumber(ARGV[5]), ARGV[6]
            local a = S.a[id]
            if not a then return {'none'} end
            local known = a.l and a.k == slot and not (a.bg and less(cg, ci, a.bg, a.bi))
            if known and (ci == id or less(a.g, id, cg, ci)) then
              a.h, a.bg, a.bi = ci == id, cg, ci
              -- Listed before this record was lost and made again, perhaps.
              if not a.h and S.o and S.o[3] then add(a.x, S.o[3]) end
            end
            return plan(id)
            """)

    /// ARGV: now, span, id, partition, offset, time, verdict, as_of, token hash or nothing.
    static let judge = RedisScript(
        prelude + """
            local id, kind, asof, hash = ARGV[3], ARGV[7], tonumber(ARGV[8]), ARGV[9]
            local p, f, q = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
            local a = S.a[id] or {x = {}, s = {}, w = now}
            if a.vf and older(p, f, q, a.vp, a.vf, a.vq) then return {'outdated'} end
            if a.vk and kind ~= 'release' and a.vk ~= 'release' and a.vh == hash then
              asof = math.max(asof, a.va)
            end
            a.vp, a.vf, a.vq, a.vk, a.va, a.vh = p, f, q, kind, asof, hash
            S.a[id] = a
            return plan(id)
            """)

    /// ARGV: now, span, revision. Everything that the plan of that revision asked for is done.
    static let clean = RedisScript(
        prelude + """
            if S.r ~= tonumber(ARGV[3]) then return 0 end
            for _, a in pairs(S.a) do a.x, a.s, a.n = {}, {}, nil end
            redis.call('HSET', key, 's', cmsgpack.pack(S))
            return 1
            """)

    /// KEYS: slot. ARGV: id, registered_at. Returns the holder and those it displaced and that
    /// are not known to have been told.
    static let claim = RedisScript(
        """
        local key, id, g = KEYS[1], ARGV[1], tonumber(ARGV[2])
        local h = redis.call('HMGET', key, 'a', 'r')
        local hi, hg = h[1], tonumber(h[2] or 0)
        if not hi or g > hg or (g == hg and id >= hi) then
          if hi and hi ~= id then redis.call('HSET', key, 'x:' .. hi, ARGV[2]) end
          redis.call('HSET', key, 'a', id, 'r', ARGV[2])
          redis.call('HDEL', key, 'x:' .. id)
          hi, hg = id, g
        end
        if hi == id then redis.call('PERSIST', key) end
        local out = {string.format('%.0f', hg), hi}
        if hi == id then
          local all = redis.call('HGETALL', key)
          for n = 1, #all, 2 do
            if all[n]:sub(1, 2) == 'x:' then out[#out + 1] = all[n]:sub(3) end
          end
        end
        return out
        """)

    /// KEYS: slot. ARGV: displaced id, the claim's registered_at.
    static let told = RedisScript(
        """
        local name = 'x:' .. ARGV[1]
        local g = redis.call('HGET', KEYS[1], name)
        if g and tonumber(g) <= tonumber(ARGV[2]) then redis.call('HDEL', KEYS[1], name) end
        return 1
        """)

    /// KEYS: slot. ARGV: id, span. The holder has another token or is gone.
    static let leave = RedisScript(
        """
        if redis.call('HGET', KEYS[1], 'a') == ARGV[1] then
          redis.call('PEXPIRE', KEYS[1], ARGV[2])
        end
        return 1
        """)

    /// KEYS: user, unlinked. ARGV: id, revision, span.
    static let unlink = RedisScript(
        newer + """
            local id, r = ARGV[1], tonumber(ARGV[2])
            if newer(r) then return 0 end
            redis.call('HDEL', KEYS[1], id)
            redis.call('HSET', KEYS[2], id, ARGV[2])
            redis.call('PEXPIRE', KEYS[2], ARGV[3])
            return 1
            """)

    /// KEYS: user, unlinked. ARGV: id, revision, stored address.
    static let link = RedisScript(
        newer + """
            local id, r = ARGV[1], tonumber(ARGV[2])
            if newer(r) then return 0 end
            redis.call('HSET', KEYS[1], id, ARGV[2] .. ':' .. ARGV[3])
            redis.call('HDEL', KEYS[2], id)
            return 1
            """)

    /// KEYS: marker. ARGV: how many partitions both topics have, fields, positions.
    static let mark = RedisScript(
        """
        local n = (#ARGV - 1) / 2
        local fields = {}
        for i = 1, n do
          fields[2 * i - 1] = ARGV[1 + i]
          fields[2 * i] = ARGV[1 + n + i]
        end
        redis.call('HSET', KEYS[1], unpack(fields))
        local known = redis.call('HLEN', KEYS[1]) - redis.call('HEXISTS', KEYS[1], 'c')
        if known >= tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'c', '1') end
        return 1
        """)

    /// KEYS: marker. ARGV: fields, what they should hold, what they hold from now on. A marker
    /// that is not as it should be is no longer trusted and keeps what it holds. It runs for every
    /// bucket every second: one call reads all fields, and only those that move are written.
    static let renew = RedisScript(
        """
        local n = #ARGV / 3
        local held = redis.call('HMGET', KEYS[1], unpack(ARGV, 1, n))
        local moved = {}
        for i = 1, n do
          local expected, next = ARGV[n + i], ARGV[2 * n + i]
          if held[i] ~= expected then
            redis.call('HDEL', KEYS[1], 'c')
            return 0
          end
          if next ~= expected then
            moved[#moved + 1] = ARGV[i]
            moved[#moved + 1] = next
          end
        end
        if #moved > 0 then redis.call('HSET', KEYS[1], unpack(moved)) end
        return 1
        """)

    private static let newer = """
        local function newer(r)
          local u = redis.call('HGET', KEYS[1], ARGV[1])
          if u and tonumber(u:match('^%d+')) > r then return true end
          local x = redis.call('HGET', KEYS[2], ARGV[1])
          return x and tonumber(x) > r
        end

        """

    /// KEYS: install. Numbers stay below 2^53: milliseconds and offsets do.
    private static let prelude = """
        local key, now, span = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
        local raw = redis.call('HGET', key, 's')
        local S = raw and cmsgpack.unpack(raw) or {r = 0, a = {}}
        for id, a in pairs(S.a) do
          if a.w and now - a.w >= span then
            S.a[id] = nil
            redis.call('HDEL', key, 'p:' .. id)
          end
        end
        local function older(p, f, q, ap, af, aq)
          if p == ap then return f < af end
          return q < aq
        end
        local function less(g, id, bg, bi)
          if g == bg then return id < bi end
          return g < bg
        end
        local function remove(list, value)
          for n = #list, 1, -1 do if list[n] == value then table.remove(list, n) end end
        end
        local function add(list, value)
          remove(list, value)
          list[#list + 1] = value
        end
        local function blocked(a)
          return a.vk and a.vk ~= 'release' and a.g <= a.va
            and (a.vh == '' or a.vh == a.k:sub(-64))
        end
        local function save()
          S.r = math.max(S.r + 1, now)
          redis.call('HSET', key, 's', cmsgpack.pack(S))
          for _, a in pairs(S.a) do
            if a.l then redis.call('PERSIST', key) return end
          end
          redis.call('PEXPIRE', key, span)
        end
        local function plan(own)
          local user = S.o and S.o[3] or nil
          local todo, unclean = {}, 0
          for id, a in pairs(S.a) do
            local target = nil
            if a.l and a.h and not blocked(a) then target = user end
            if a.u ~= target then
              if a.u then add(a.x, a.u) end
              if id ~= own then a.n = true end
              a.u = target
            end
            if target then remove(a.x, target) end
            if a.n or #a.x > 0 or #a.s > 0 then unclean = 1 end
            if id == own or a.n or #a.x > 0 or #a.s > 0 then todo[#todo + 1] = id end
          end
          save()
          local held = S.a[own] and S.a[own].h and 1 or 0
          local out = {'ok', string.format('%.0f', S.r), held, unclean}
          for _, id in ipairs(todo) do
            local a = S.a[id]
            local stored = a.u and redis.call('HGET', key, 'p:' .. id) or ''
            out[#out + 1] = {id, a.u and 1 or 0, a.u or '', stored or '', a.x, a.s}
          end
          return out
        end

        """
}
