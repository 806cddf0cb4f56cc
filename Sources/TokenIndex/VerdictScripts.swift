// `VerdictBook` as functions for scripts. Of an address: V what was said of its tokens by their
// hash, each {p certain, c counted, h held by fuse id}; vp vf vq where the last record stands, vl
// what it says and vh of which token. A verdict is {k kind, a as_of, r reason, o held, i fuse id,
// n fuse}, with empty texts for what it has not.

internal enum VerdictScripts {
    static let functions = """
        local function keep(t, e)
          if not t.p or e.a >= t.p.a then t.p = e end
        end
        local function settle(t, h, e)
          if e.k == 'release' and t.c and t.c.n == e.n and t.c.a <= e.a then t.c = nil end
          h[e.i] = {k = 'release', a = e.a, r = e.r, o = e.o, i = e.i, n = e.n}
        end
        local function hold(t, h, e)
          local former = h[e.i]
          local settled = former and former.k == 'release' and e.i ~= ''
          if t.c and t.c.n == e.n and (not settled or t.c.a <= e.a) then
            if not settled then e.a = math.max(e.a, t.c.a) end
            t.c = nil
          end
          if settled then return end
          if former and former.k == 'quarantine' then e.a = math.max(e.a, former.a) end
          h[e.i] = e
        end
        local function count(t, h, e)
          local held = false
          for _, other in pairs(h) do
            if other.k == 'quarantine' and other.n == e.n then
              other.a, held = math.max(other.a, e.a), true
            end
          end
          if held then return end
          if t.c and t.c.n == e.n then
            e.a = math.max(e.a, t.c.a)
          elseif t.c then
            keep(t, t.c)
          end
          t.c = e
        end
        local function bound(map, max, rank)
          local n, low, lowest = 0, nil, nil
          for name, value in pairs(map) do
            if name ~= '' then
              n = n + 1
              local r = rank(value)
              if not low or r < lowest or (r == lowest and name < low) then
                low, lowest = name, r
              end
            end
          end
          if n > max then map[low] = nil end
        end
        local function reach(t)
          local a = math.max(t.p and t.p.a or 0, t.c and t.c.a or 0)
          for _, e in pairs(t.h) do a = math.max(a, e.a) end
          return a
        end
        local function forget(a, asof)
          for hash, t in pairs(a.V) do
            if t.p and t.p.a <= asof then t.p = nil end
            if t.c and t.c.a <= asof then t.c = nil end
            for id, e in pairs(t.h) do
              if e.k ~= 'release' and e.a <= asof then t.h[id] = nil end
            end
            if not t.p and not t.c and next(t.h) == nil then a.V[hash] = nil end
          end
        end
        local function take(a, hash, e)
          a.V = a.V or {}
          if e.k == 'forget' and hash == '' then forget(a, e.a) end
          local t = a.V[hash] or {h = {}}
          a.V[hash] = t
          if e.k == 'release' then
            settle(t, t.h, e)
          elseif e.k == 'quarantine' then
            hold(t, t.h, e)
          elseif e.n ~= '' and e.i == '' then
            count(t, t.h, e)
          else
            keep(t, e)
            if e.i ~= '' then settle(t, t.h, e) end
          end
          bound(t.h, \(VerdictBook.holdsMax), function(h)
            return (h.k == 'quarantine' and 1e15 or 0) + h.a
          end)
          bound(a.V, \(VerdictBook.tokensMax), reach)
        end
        local function blocker(a)
          if not a.V or not a.l then return nil end
          local best, rank
          local function offer(e, r)
            if e and a.g <= e.a
              and (not best or r < rank or (r == rank and e.a > best.a)) then
              best, rank = e, r
            end
          end
          for _, hash in ipairs({a.k:sub(-64), ''}) do
            local t = a.V[hash]
            if t then
              offer(t.p, 0)
              offer(t.c, 1)
              for _, e in pairs(t.h) do if e.k == 'quarantine' then offer(e, 2) end end
            end
          end
          return best
        end
        local function blocks(a, hash, e)
          local t = a.V and a.V[hash]
          if not a.l or not t or (hash ~= '' and hash ~= a.k:sub(-64)) then return false end
          local function reaches(v) return v and a.g <= v.a end
          if e.k ~= 'quarantine' and e.k ~= 'release' and (e.n == '' or e.i ~= '') then
            return reaches(t.p)
          end
          if reaches(t.c) then return true end
          for _, v in pairs(t.h) do
            if v.k == 'quarantine' and v.n == e.n and reaches(v) then return true end
          end
          return false
        end
        local function held(a, name)
          for _, t in pairs(a.V or {}) do
            for _, e in pairs(t.h) do
              if e.k == 'quarantine' and e.n == name then return true end
            end
          end
          return false
        end
        local function overtaken(a)
          local e = a.vl
          if not a.l or not e then return false end
          local alone
          if e.k ~= 'release' and a.g <= e.a and (a.vh == '' or a.vh == a.k:sub(-64)) then
            alone = e.k
          end
          local best = blocker(a)
          return (best and best.k) ~= alone
        end

        """
}
