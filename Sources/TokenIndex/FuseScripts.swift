// The fuses in Redis: the rule of `FuseBook`, for all processes together. All their keys share
// one bucket.

internal import Redis

internal enum FuseScripts {
    /// KEYS: answers, tokens, tripped fuses. ARGV: now, address id or nothing to weigh only, the
    /// record's time, window, tokens at least, permille, name, id of the fuse if it trips, reason,
    /// how old a verdict has to be to weigh. Returns `pass`, `young`, `tripped` and the id, or
    /// `trips`, the id and the addresses judged so far.
    static let tally = RedisScript(
        """
        local now, id, time, window = tonumber(ARGV[1]), ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])
        local tripped = redis.call('HGET', KEYS[3], ARGV[7])
        if tripped then
          local fuse, since = tripped:match('^([^\\n]*)\\n(%d+)')
          if time < tonumber(since) - window then return {'pass'} end
          if id ~= '' then redis.call('ZADD', KEYS[2], ARGV[3], id) end
          return {'tripped', fuse}
        end
        local start = now - window
        if time < start then return {'pass'} end
        if id ~= '' then redis.call('ZADD', KEYS[2], ARGV[3], id) end
        redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', '(' .. string.format('%.0f', start))
        redis.call('PEXPIRE', KEYS[2], ARGV[4])
        local tokens, answers = redis.call('ZCARD', KEYS[2]), 0
        if tokens < tonumber(ARGV[5]) then return {'pass'} end
        local counts = redis.call('HGETALL', KEYS[1])
        for n = 1, #counts, 2 do
          if (tonumber(counts[n]) + 1) * 60000 > start then
            answers = answers + tonumber(counts[n + 1])
          else
            redis.call('HDEL', KEYS[1], counts[n])
          end
        end
        if tokens * 1000 < tonumber(ARGV[6]) * answers then return {'pass'} end
        local weighed = redis.call('ZCOUNT', KEYS[2], '-inf', now - tonumber(ARGV[10]))
        if weighed < tonumber(ARGV[5]) or weighed * 1000 < tonumber(ARGV[6]) * answers then
          return {'young'}
        end
        redis.call('PERSIST', KEYS[2])
        redis.call('HSET', KEYS[3], ARGV[7], ARGV[8] .. '\\n' .. ARGV[1] .. '\\n' .. ARGV[9])
        local out = {'trips', ARGV[8]}
        for _, other in ipairs(redis.call('ZRANGE', KEYS[2], 0, -1)) do
          if other ~= id then out[#out + 1] = other end
        end
        return out
        """)

    /// KEYS: tokens, tripped fuses, settled ones. ARGV: address id, the record's time, name, fuse,
    /// reason, 1 while the topics are read back. Returns how the fuse was settled when it is.
    static let adopt = RedisScript(
        """
        local last = ARGV[6] == '0' and redis.call('HGET', KEYS[3], ARGV[3])
        if last then
          local fuse, settlement = last:match('^([^\\n]*)\\n(.*)$')
          local id = ARGV[4]
          if not (#id > #fuse or (#id == #fuse and id > fuse)) then return settlement end
        end
        redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
        redis.call('PERSIST', KEYS[1])
        local tripped = redis.call('HGET', KEYS[2], ARGV[3])
        local fuse, since
        if tripped then fuse, since = tripped:match('^([^\\n]*)\\n(%d+)') end
        local id = ARGV[4]
        if not fuse or (fuse == id and tonumber(ARGV[2]) < tonumber(since))
          or #id > #fuse or (#id == #fuse and id > fuse) then
          redis.call('HSET', KEYS[2], ARGV[3], id .. '\\n' .. ARGV[2] .. '\\n' .. ARGV[5])
        end
        return 1
        """)

    /// KEYS: answers, tokens, tripped fuses, settled ones. ARGV: address id, name, how it is settled
    /// or nothing, 1 when the address is to go from a fuse too that only counts.
    static let settled = RedisScript(
        """
        local tripped = redis.call('HGET', KEYS[3], ARGV[2])
        if not tripped and ARGV[4] == '0' then return 0 end
        redis.call('ZREM', KEYS[2], ARGV[1])
        if tripped and redis.call('EXISTS', KEYS[2]) == 0 then
          redis.call('HDEL', KEYS[3], ARGV[2])
          redis.call('DEL', KEYS[1])
          if ARGV[3] ~= '' then
            local fuse = tripped:match('^([^\\n]*)')
            redis.call('HSET', KEYS[4], ARGV[2], fuse .. '\\n' .. ARGV[3])
          end
        end
        return 1
        """)

    /// KEYS: answers, churn. ARGV: answers, minute, hour, how long counts are kept in ms.
    static let answered = RedisScript(
        """
        redis.call('HINCRBY', KEYS[1], ARGV[2], ARGV[1])
        redis.call('PEXPIRE', KEYS[1], ARGV[4])
        redis.call('HINCRBY', KEYS[2], 's' .. ARGV[3], ARGV[1])
        redis.call('PEXPIRE', KEYS[2], 604800000)
        return 1
        """)

    /// KEYS: churn. ARGV: hour, hours, hours at least, dead at least, factor. Returns how many
    /// died within the hour when that is worth an alarm, else 0.
    static let churned = RedisScript(
        """
        local hour = tonumber(ARGV[1])
        local count = redis.call('HINCRBY', KEYS[1], 'd' .. ARGV[1], 1)
        redis.call('PEXPIRE', KEYS[1], 604800000)
        if count < tonumber(ARGV[4]) or count % 10 ~= 0 then return 0 end
        if redis.call('HGET', KEYS[1], 'alarmed') == ARGV[1] then return 0 end
        local all = redis.call('HGETALL', KEYS[1])
        local hours, answers, dead, present = 0, 0, 0, 0
        for n = 1, #all, 2 do
          local kind, at = all[n]:match('^([sd])(%d+)$')
          at = tonumber(at)
          if at and at < hour - tonumber(ARGV[2]) then
            redis.call('HDEL', KEYS[1], all[n])
          elseif at == hour then
            if kind == 's' then present = tonumber(all[n + 1]) end
          elseif kind == 's' then
            hours, answers = hours + 1, answers + tonumber(all[n + 1])
          elseif kind == 'd' then
            dead = dead + tonumber(all[n + 1])
          end
        end
        if hours < tonumber(ARGV[3]) then return 0 end
        if count * answers <= tonumber(ARGV[5]) * dead * math.max(present, count) then return 0 end
        redis.call('HSET', KEYS[1], 'alarmed', ARGV[1])
        return count
        """)
}
