// The steps of a change as scripts. Each touches the keys of one bucket, can be repeated without
// harm, and leaves what still has to be done elsewhere written down in the record it changed.
//
// The state of an install is packed into one field: r revision, o owner {time, address id, user},
// a addresses. Of an address: p f q partition, offset and time of the last record, e newest time,
// l live, v version, g registered_at, y last seen, k token slot, h held, bg bi bound claim, V vp vf
// vq vl vh verdicts, see `VerdictScripts`, u user it is listed under, c with which standing, x users
// it has to be unlinked from, s slots it left, n it has to be listed anew, w not live since.
// `InstallState` is the same in Swift.

internal import Redis

internal enum IndexScripts {
    /// ARGV: now, span, id, partition, offset, time, live, version, registered_at, slot, has user,
    /// user, stored address, addresses per install, last seen. Returns a plan, `full` or
    /// `outdated`.
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
              -- Listed again all the same: it may be the repetition after a loss.
              if a.l and version < a.v then return plan(id, 'outdated') end
              if a.k ~= slot then
                if a.k then add(a.s, a.k) end
                remove(a.s, slot)
                a.h, a.bg, a.bi = false, nil, nil
              end
              a.l, a.v, a.g, a.k, a.w = true, version, tonumber(ARGV[9]), slot, nil
              a.y = tonumber(ARGV[15])
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
            end
            return plan(id)
            """)

    /// ARGV: now, span, id, partition, offset, time, verdict, as_of, token hash or nothing, reason,
    /// held verdict or nothing, fuse's id or nothing, fuse's name or nothing, 1 when it was read. The
    /// plan's word has the words that `IndexPlan.JudgedWord` lists.
    static let judge = RedisScript(
        prelude + """
            local id, hash = ARGV[3], ARGV[9]
            local p, f, q = tonumber(ARGV[4]), tonumber(ARGV[5]), tonumber(ARGV[6])
            local a = S.a[id] or {x = {}, s = {}, w = now}
            if a.vf and older(p, f, q, a.vp, a.vf, a.vq) then return {'outdated'} end
            local function said()
              return {
                k = ARGV[7], a = tonumber(ARGV[8]), r = ARGV[10], o = ARGV[11], i = ARGV[12],
                n = ARGV[13]}
            end
            a.vp, a.vf, a.vq = p, f, q
            if ARGV[14] == '1' then a.vl, a.vh = said(), hash end
            local e = said()
            take(a, hash, e)
            S.a[id] = a
            local word = 'judged'
            if blocks(a, hash, e) then word = word .. ' blocks' end
            if e.n ~= '' and held(a, e.n) then word = word .. ' held' end
            local t = a.V[hash]
            local own = t and t.h[e.i]
            if own and own.k == 'quarantine' then word = word .. ' holds' end
            if overtaken(a) then word = word .. ' overtaken' end
            return plan(id, word)
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

    /// KEYS: user, unlinked, further addresses. ARGV: id, revision, span.
    static let unlink = RedisScript(
        newer + """
            local id, r = ARGV[1], tonumber(ARGV[2])
            if newer(r) then return 0 end
            redis.call('HDEL', KEYS[1], id)
            if redis.call('HDEL', KEYS[3], id) == 1 and redis.call('EXISTS', KEYS[3]) == 0 then
              redis.call('HDEL', KEYS[1], '')
            end
            redis.call('HSET', KEYS[2], id, ARGV[2])
            redis.call('PEXPIRE', KEYS[2], ARGV[3])
            return 1
            """)

    /// KEYS: user, unlinked, further addresses. ARGV: id, revision, entry, how many addresses lie
    /// in the first key. The empty field of the first key says that there are further ones.
    static let link = RedisScript(
        newer + """
            local id, r = ARGV[1], tonumber(ARGV[2])
            if newer(r) then return 0 end
            local key = KEYS[1]
            if redis.call('HEXISTS', key, id) == 0
              and redis.call('HLEN', key) >= tonumber(ARGV[4]) then
              redis.call('HSET', key, '', '+')
              key = KEYS[3]
            elseif redis.call('HEXISTS', KEYS[3], id) == 1 then
              key = KEYS[3]
            end
            redis.call('HSET', key, id, ARGV[2] .. ':' .. ARGV[3])
            redis.call('HDEL', KEYS[2], id)
            return 1
            """)

    /// KEYS: any. Returns what lies there.
    static let type = RedisScript("return redis.call('TYPE', KEYS[1]).ok")

    static let newer = """
        local function newer(r)
          local u = redis.call('HGET', KEYS[1], ARGV[1])
            or redis.call('HGET', KEYS[3], ARGV[1])
          if u and tonumber(u:match('^%d+')) > r then return true end
          local x = redis.call('HGET', KEYS[2], ARGV[1])
          return x and tonumber(x) > r
        end

        """

    /// KEYS: install. Numbers stay below 2^53: milliseconds and offsets do.
    static let prelude =
        VerdictScripts.functions + """
            local key, now, span = KEYS[1], tonumber(ARGV[1]), tonumber(ARGV[2])
            local raw = redis.call('HGET', key, 's')
            local S = raw and cmsgpack.unpack(raw) or {r = 0, a = {}}
            for id, a in pairs(S.a) do
              if a.vk then
                -- As it was stored when an address had one verdict.
                local function said()
                  return {k = a.vk, a = a.va, r = a.vr, o = a.vo, i = a.vi, n = ''}
                end
                a.vl = said()
                take(a, a.vh, said())
                a.vk, a.va, a.vr, a.vo, a.vi = nil, nil, nil, nil, nil
              end
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
            local function save()
              S.r = math.max(S.r + 1, now)
              redis.call('HSET', key, 's', cmsgpack.pack(S))
              for _, a in pairs(S.a) do
                if a.l then redis.call('PERSIST', key) return end
              end
              redis.call('PEXPIRE', key, span)
            end
            local standings = {
              invalidate = 'i', suspend = 's', quarantine = 'q', stale = 'o', forget = 'f'}
            local function standing(a)
              if not a.h then return 'd' end
              local e = blocker(a)
              return e and standings[e.k] or 'a'
            end
            local function entry(id, a)
              local stored = ''
              if a.u and (a.c == 'a' or a.c == 'q') then
                stored = redis.call('HGET', key, 'p:' .. id) or ''
              end
              return {id, a.u and 1 or 0, a.u or '', a.u and a.c or '', stored, a.x, a.s}
            end
            local function plan(own, word)
              local user = S.o and S.o[3] or nil
              local todo, unclean = {}, 0
              for id, a in pairs(S.a) do
                local target, code = nil, nil
                if a.l and user then target, code = user, standing(a) end
                if a.u ~= target or a.c ~= code then
                  if a.u and a.u ~= target then add(a.x, a.u) end
                  if id ~= own then a.n = true end
                  a.u, a.c = target, code
                end
                if target then remove(a.x, target) end
                if a.n or #a.x > 0 or #a.s > 0 then unclean = 1 end
                if id == own or a.n or #a.x > 0 or #a.s > 0 then todo[#todo + 1] = id end
              end
              save()
              local held = S.a[own] and S.a[own].h and 1 or 0
              local out = {word or 'ok', string.format('%.0f', S.r), held, unclean}
              for _, id in ipairs(todo) do out[#out + 1] = entry(id, S.a[id]) end
              return out
            end

            """
}
