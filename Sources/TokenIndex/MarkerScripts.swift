// What is written into the markers of the buckets. The writer's stamp, a field of its own that
// grows with every write, is how lost writes show: an older one, or none, means that the bucket is
// not what this writer left.

internal import Redis

internal enum MarkerScripts {
    /// KEYS: marker. ARGV: field of the stamp, stamp, 1 when the bucket has to be reconciled. The
    /// bucket is not to be trusted from here on.
    static let hold = RedisScript(
        """
        redis.call('HDEL', KEYS[1], 'c')
        redis.call('HSET', KEYS[1], ARGV[1], ARGV[2])
        if ARGV[3] == '1' then redis.call('HSET', KEYS[1], 'h', '1') end
        return 1
        """)

    /// KEYS: marker. ARGV: how many partitions all topics have, field of the stamp, expected
    /// stamp, new one, what `c` is to hold, fields, positions.
    static let mark = RedisScript(
        """
        if (redis.call('HGET', KEYS[1], ARGV[2]) or '') ~= ARGV[3] then return 0 end
        local n = (#ARGV - 5) / 2
        local fields = {ARGV[2], ARGV[4]}
        for i = 1, n do
          fields[#fields + 1] = ARGV[5 + i]
          fields[#fields + 1] = ARGV[5 + n + i]
        end
        redis.call('HSET', KEYS[1], unpack(fields))
        redis.call('HDEL', KEYS[1], 'h')
        local known = 0
        for _, field in ipairs(redis.call('HKEYS', KEYS[1])) do
          if field:match('^[diu]%d+$') then known = known + 1 end
        end
        if known >= tonumber(ARGV[1]) then redis.call('HSET', KEYS[1], 'c', ARGV[5]) end
        return 1
        """)

    /// KEYS: marker. ARGV: field of the stamp, expected stamp, new one, what `c` is to hold, 1 when it
    /// has to be there, fields, what they should hold, what they hold from now on. A marker that is
    /// not as it should be is no longer trusted and keeps what it holds. A writer that was replaced
    /// and does not know it yet leaves some of its successor's in that state: of one that is as its
    /// writer left it otherwise nothing was lost. It runs for every bucket every second: one call reads
    /// all fields, and only those that move are written.
    static let renew = RedisScript(
        """
        local n = (#ARGV - 5) / 3
        local held = redis.call('HMGET', KEYS[1], 'c', ARGV[1], unpack(ARGV, 6, 5 + n))
        local moved = {ARGV[1], ARGV[3]}
        local isGood = (held[2] or '') == ARGV[2]
        for i = 1, n do
          local expected, next = ARGV[5 + n + i], ARGV[5 + 2 * n + i]
          if (held[2 + i] or '') ~= expected then isGood = false end
          if next ~= expected then
            moved[#moved + 1] = ARGV[5 + i]
            moved[#moved + 1] = next
          end
        end
        if not isGood then
          redis.call('HDEL', KEYS[1], 'c')
          return 0
        end
        if held[1] or ARGV[5] == '1' then
          moved[#moved + 1] = 'c'
          moved[#moved + 1] = ARGV[4]
        end
        redis.call('HSET', KEYS[1], unpack(moved))
        return 1
        """)
}
