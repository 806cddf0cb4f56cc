// The counts in Redis. Keys of a person lie in the person's bucket, those of a device in its
// install's, those of a source in one of its own, so that each script has keys of one slot:
//
//     <prefix>{b<n>}:k:<app>:<user>/<cap>    zset   message id -> when it took its place
//     <prefix>{b<n>}:q:<address id>          zset   message id -> when it took its slot
//     <prefix>{b<n>}:w:<address id>          text   <time>:<offset>:<id> of the newest message
//     <prefix>{b<n>}:l:<rate>                hash   n -> permits left, t -> when that was counted
//     <prefix>{b<n>}:r:<source>/<quota>/<w>  number what was counted in window w
//
// All of them end by themselves when nothing is counted any more.

internal import Base
internal import Redis

internal enum UsageScripts {
    /// KEYS: caps. ARGV: now, id, then count and span of each. Returns 0, or which cap is full.
    static let takePlace = RedisScript(
        """
        local now, id = tonumber(ARGV[1]), ARGV[2]
        local missing = {}
        for n, key in ipairs(KEYS) do
          local count, span = tonumber(ARGV[1 + 2 * n]), tonumber(ARGV[2 + 2 * n])
          redis.call('ZREMRANGEBYSCORE', key, '-inf', now - span)
          if not redis.call('ZSCORE', key, id) then
            if redis.call('ZCARD', key) >= count then return n end
            missing[#missing + 1] = n
          end
        end
        for _, n in ipairs(missing) do
          redis.call('ZADD', KEYS[n], now, id)
          redis.call('PEXPIRE', KEYS[n], ARGV[2 + 2 * n])
        end
        return 0
        """)

    /// KEYS: any. ARGV: id.
    static let giveBack = RedisScript(
        """
        for _, key in ipairs(KEYS) do redis.call('ZREM', key, ARGV[1]) end
        return 0
        """)

    /// KEYS: slots, newest. ARGV: now, count, span, id, time, offset, 1 when it has waited, until when
    /// it can wait. Returns 0 for a slot, -1 for a message that was replaced, else when the next slot
    /// is free. Only what is sent, or can wait for that, is the newest: nothing else may take the
    /// place of the one that waits.
    static let takeSlot = RedisScript(
        """
        local now, count, span = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
        local id, time, offset = ARGV[4], tonumber(ARGV[5]), tonumber(ARGV[6])
        redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now - span)
        if redis.call('ZSCORE', KEYS[1], id) then return 0 end
        local held, newest = redis.call('GET', KEYS[2]), true
        if held then
          local t, o, i = held:match('^(-?%d+):(-?%d+):(.*)$')
          t, o = tonumber(t), tonumber(o)
          newest = i == id or t < time or t == time and (o < offset or o == offset and i < id)
        end
        local used, free = redis.call('ZCARD', KEYS[1]), now
        if used >= count then
          local first = redis.call('ZRANGE', KEYS[1], used - count, used - count, 'WITHSCORES')
          free = tonumber(first[2]) + span
        end
        if newest and (used < count or free <= tonumber(ARGV[8])) then
          redis.call('SET', KEYS[2], ARGV[5] .. ':' .. ARGV[6] .. ':' .. id, 'PX', 2 * span)
        end
        if used < count and (newest or ARGV[7] == '0') then
          redis.call('ZADD', KEYS[1], now, id)
          redis.call('PEXPIRE', KEYS[1], span)
          return 0
        end
        if not newest then return -1 end
        return free
        """)

    /// KEYS: rate. ARGV: per second, burst, wanted, milliseconds of the ramp. Returns what is granted.
    /// The server's clock counts: those of replicas differ by more than a lease lasts. With a ramp
    /// there is a level besides, the rate of the moment: see `SharedRate.ramp`.
    static let lease = RedisScript(
        """
        local time = redis.call('TIME')
        local now = time[1] * 1000 + math.floor(time[2] / 1000)
        local rate, burst = tonumber(ARGV[1]), tonumber(ARGV[2])
        local ramp = tonumber(ARGV[4])
        local held = redis.call('HMGET', KEYS[1], 'n', 't', 'l')
        local at = tonumber(held[2] or now)
        local passed = math.max(now - at, 0)
        local level, most = rate, burst
        if ramp > 1000 then
          local least = rate * 1000 / ramp
          level = tonumber(held[3] or least)
          local up = 0
          if tonumber(held[1] or burst) < burst * level / rate / 4 then
            up = math.min(passed, 1000)
          end
          level = level + (up - (passed - up)) * rate / ramp
          level = math.min(math.max(level, least), rate)
          most = math.max(burst * level / rate / 2, 1)
        end
        local left = math.min(most, tonumber(held[1] or most) + passed * level / 1000)
        local granted = math.max(math.min(tonumber(ARGV[3]), math.floor(left)), 0)
        redis.call('HSET', KEYS[1],
          'n', tostring(left - granted), 't', math.max(now, at), 'l', tostring(level))
        redis.call('PEXPIRE', KEYS[1], math.max(60000, ramp))
        return granted
        """)

    /// KEYS: windows. ARGV: how many each may hold, and how long it is kept. Returns 0, or which
    /// one is full.
    static let count = RedisScript(
        """
        for n, key in ipairs(KEYS) do
          if tonumber(redis.call('GET', key) or '0') >= tonumber(ARGV[2 * n - 1]) then
            return n
          end
        end
        for n, key in ipairs(KEYS) do
          if redis.call('INCR', key) == 1 then redis.call('PEXPIRE', key, ARGV[2 * n]) end
        end
        return 0
        """)
}

extension RedisLayout {
    func places(_ cap: UsageCap, of userID: String, app: String) -> String {
        "\(prefix){b\(Self.bucket(of: userID, app: app))}:k:\(app):\(userID)/\(cap.name)"
    }

    func rate(_ name: String) -> String {
        "\(prefix){b\(Self.bucket(of: "rate/\(name)"))}:l:\(name)"
    }

    func slots(of addressID: String) -> String { device("q", addressID) }
    func newestMessage(of addressID: String) -> String { device("w", addressID) }

    func window(_ quota: UsageQuota, of source: String, at now: UnixMillis) -> String {
        let number = now.value / max(quota.cap.span.millis, 1)
        return
            "\(prefix){b\(Self.bucket(of: "source/\(source)"))}:r:\(source)/\(quota.name)/\(number)"
    }

    private func device(_ type: String, _ addressID: String) -> String {
        let install = AddressID(addressID)?.install ?? addressID
        return "\(prefix){b\(Self.bucket(of: install))}:\(type):\(addressID)"
    }
}
