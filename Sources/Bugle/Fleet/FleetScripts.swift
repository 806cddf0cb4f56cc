// What replicas agree on in Redis, each in one key: who makes a token, and who has which name.
// Scripts read the server's clock, so that no replica's matters.
//
//     <prefix>{fleet}:t:<name>     hash   t -> sealed token, at -> when it was made, life, id,
//                                         by, until -> who may make the next
//     <prefix>{fleet}:n:<group>    hash   <name> -> "<owner> <until> <who>", see `InstanceLease`

internal import Redis

internal enum FleetScripts {
    /// Milliseconds of the server's clock.
    private static let clock = """
        local t = redis.call('TIME')
        local now = t[1] * 1000 + math.floor(t[2] / 1000)

        """

    /// A token that has not used up ARGV[2] percent of its life and has not the id ARGV[4], or the
    /// right to make one for ARGV[3] ms, or word that ARGV[1] is not the one.
    static let askToken = RedisScript(
        clock + """
            local h = redis.call('HMGET', KEYS[1], 't', 'at', 'life', 'by', 'until', 'id')
            if h[1] and h[6] ~= ARGV[4] then
                local age = now - tonumber(h[2])
                if age * 100 < tonumber(h[3]) * tonumber(ARGV[2]) then
                    return {'token', h[1], math.max(age, 0), tonumber(h[3])}
                end
            end
            if h[4] and h[4] ~= ARGV[1] and tonumber(h[5]) > now then return {'wait'} end
            redis.call('HSET', KEYS[1], 'by', ARGV[1], 'until', now + tonumber(ARGV[3]))
            if redis.call('PTTL', KEYS[1]) < tonumber(ARGV[3]) then
                redis.call('PEXPIRE', KEYS[1], ARGV[3])
            end
            return {'make'}
            """)

    /// Stores the token ARGV[2] of age ARGV[3], life ARGV[4] and id ARGV[5], unless a newer one is
    /// there, and gives back the right of ARGV[1] to make one.
    static let publishToken = RedisScript(
        clock + """
            local made = now - tonumber(ARGV[3])
            local at = redis.call('HGET', KEYS[1], 'at')
            if not at or tonumber(at) < made then
                redis.call('HSET', KEYS[1], 't', ARGV[2], 'at', made, 'life', ARGV[4], 'id', ARGV[5])
                redis.call('PEXPIRE', KEYS[1], math.max(tonumber(ARGV[4]) - tonumber(ARGV[3]), 1))
            end
            if redis.call('HGET', KEYS[1], 'by') == ARGV[1] then
                redis.call('HDEL', KEYS[1], 'by', 'until')
            end
            return 1
            """)
}

extension FleetScripts {
    /// The parts of an entry: owner, end in ms of the server's clock, and a person's words for it.
    private static let entry = """
        local function read(name)
            local v = redis.call('HGET', KEYS[1], name)
            if not v then return nil end
            local owner, ends, who = string.match(v, '^(%S+) (%d+) (.*)$')
            return owner, tonumber(ends), who
        end
        local function write(name)
            local ends = string.format('%d', now + tonumber(ARGV[3]))
            redis.call('HSET', KEYS[1], name, ARGV[1] .. ' ' .. ends .. ' ' .. ARGV[2])
            redis.call('PEXPIRE', KEYS[1], 86400000)
        end

        """

    /// Takes the first of `ARGV[4]` names that nobody has, for owner ARGV[1], known as ARGV[2], for
    /// ARGV[3] ms; returns it, or nothing.
    static let takeName = RedisScript(
        clock + entry + """
            for n = 0, tonumber(ARGV[4]) - 1 do
                local name = 'slot-' .. n
                local owner, ends = read(name)
                if not owner or owner == ARGV[1] or ends <= now then
                    write(name)
                    return {name}
                end
            end
            return {}
            """)

    /// Keeps the name ARGV[4], also when Redis has forgotten it; returns who has it if that is
    /// somebody else.
    static let keepName = RedisScript(
        clock + entry + """
            local owner, ends, who = read(ARGV[4])
            if owner and owner ~= ARGV[1] and ends > now then return {who} end
            write(ARGV[4])
            return {}
            """)

    /// Takes the name ARGV[4] whoever has it; returns who had it if that was somebody else, and for
    /// how many ms more.
    static let claimName = RedisScript(
        clock + entry + """
            local owner, ends, who = read(ARGV[4])
            write(ARGV[4])
            if owner and owner ~= ARGV[1] and ends > now then return {who, ends - now} end
            return {}
            """)

    /// Gives the name ARGV[4] back.
    static let releaseName = RedisScript(
        clock + entry + """
            if read(ARGV[4]) == ARGV[1] then redis.call('HDEL', KEYS[1], ARGV[4]) end
            return {}
            """)
}
