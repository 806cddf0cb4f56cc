// What lies in Redis of a device and of a person: every key, every field, and nothing that no push
// needs. Who adds one to it meets this list, and README.md's word on privacy.

import Base
import JSON
import RedisServer
import Testing

@testable import TokenIndex

@Suite struct `What lies in Redis` {
    /// The keys below a prefix without their bucket, with the fields of those that have any. The
    /// buckets' markers, which are of nobody, are left out.
    private static let list = """
        local lines = {}
        for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
          local name = key:sub(#ARGV[1] + 1):gsub('{b%d+}:', '')
          if redis.call('TYPE', key).ok ~= 'hash' then
            lines[#lines + 1] = name
          elseif name ~= 'm' then
            for _, field in ipairs(redis.call('HKEYS', key)) do
              lines[#lines + 1] = name .. ' ' .. field
            end
          end
        end
        table.sort(lines)
        return table.concat(lines, '\\n')
        """

    /// The names in the packed state of an install, then those of its only address.
    private static let state = """
        local key = redis.call('KEYS', ARGV[1] .. '*:i:*')[1]
        local state = cmsgpack.unpack(redis.call('HGET', key, 's'))
        local function names(map)
          local list = {}
          for name in pairs(map) do list[#list + 1] = name end
          table.sort(list)
          return table.concat(list, ' ')
        end
        return names(state) .. '\\n' .. names(state.a[next(state.a)])
        """

    /// How many names and values below a prefix hold a text.
    private static let search = """
        local found = 0
        local function look(text)
          if text:find(ARGV[2], 1, true) then found = found + 1 end
        end
        for _, key in ipairs(redis.call('KEYS', ARGV[1] .. '*')) do
          look(key)
          if redis.call('TYPE', key).ok ~= 'hash' then
            look(redis.call('GET', key))
          else
            for _, text in ipairs(redis.call('HGETALL', key)) do look(text) end
          end
        end
        return found
        """

    /// What producers put into records although nobody asked for it.
    private static let surplus = [
        "email": "ada@example.com", "phone": "+43 664 1234567", "full_name": "Ada Lovelace",
        "device_name": "Ada's phone", "ip": "203.0.113.9", "idfa": "EA7583CD-A667-48BC",
    ]

    private static var surplusMembers: String {
        surplus.map { #","\#($0.key)":"\#($0.value)""# }.joined()
    }

    private func device(_ members: String) throws -> IndexChange {
        let key = Array("shop/i-1".utf8)
        let value = Array(
            """
            {"v":1,"app":"shop","install_id":"i-1","user_id":"u-1","platform":"ios",
             "gateway":"apns","environment":"production",
             "token":"\(String(repeating: "0a", count: 32))","version":7,
             "registered_at":1700000000000,"permission":"granted"\(members)}
            """.utf8)
        return try key.withUnsafeBytes { key in
            try value.withUnsafeBytes { value in
                IndexChange.registration(
                    try RegistrationRecord.decode(
                        key: key, value: value, timestamp: 5, parser: JSONParser()))
            }
        }
    }

    private func person(_ members: String) throws -> IndexChange {
        let key = Array("shop/u-1".utf8)
        let value = Array(#"{"v":1,"app":"shop","user_id":"u-1"\#(members)}"#.utf8)
        return try key.withUnsafeBytes { key in
            try value.withUnsafeBytes { value in
                IndexChange.user(
                    try UserChange.decode(key: key, value: value, parser: JSONParser()))
            }
        }
    }

    @Test func `of a device is its address under user, install and token, and no more`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let rig = try IndexRig(store)
        let told = #","locale":"de-AT","time_zone":"Europe/Vienna","muted_channels":["x","y"]"#
        #expect(try rig.apply(try device(told + Self.surplusMembers)) == .applied)
        let administrator = try Operator(server)
        let hash = try #require(try rig.addresses("u-1", app: "shop").first?.tokenHash)
        #expect(
            try administrator.run("EVAL", Self.list, "0", store.prefix)
                == """
                i:shop/i-1 p:shop/i-1
                i:shop/i-1 s
                t:shop:apns:production:\(hash) a
                t:shop:apns:production:\(hash) r
                u:shop:u-1 shop/i-1
                """)
        // Of a state the places in the topics, times, the token's slot and whom it is listed under.
        #expect(
            try administrator.run("EVAL", Self.state, "0", store.prefix)
                == "a o r\nbg bi c e f g h k l p q s u v x y")
        // The address itself: a head of fixed length and these texts.
        #expect(
            DeviceField.allCases.map { "\($0)" } == [
                "userID", "platform", "token", "apnsTopic", "vapidKeyID", "p256dh", "auth",
                "locale", "timeZone", "appVersion", "mutedChannels", "subscriptions", "optOuts",
                "capabilities", "publicKeys",
            ])
        #expect(DeviceLayout.headerBytes == 98)
        let texts = ["u-1", "ios", String(repeating: "0a", count: 32)]
        let preferences = ["de-AT", "Europe/Vienna", "x\0y"]
        let stored = 98 + (texts + preferences).map(\.utf8.count).reduce(0, +)
        let key = try administrator.run(
            "EVAL", "return redis.call('KEYS', ARGV[1])[1]", "0", "\(store.prefix)*:u:shop:u-1")
        let length = try administrator.run("HSTRLEN", key, "shop/i-1")
        let revision = try administrator.run(
            "EVAL", "return redis.call('HGET', KEYS[1], ARGV[1]):match('^%d+:')", "1", key,
            "shop/i-1")
        #expect(length == String(revision.utf8.count + stored))
        for value in Self.surplus.values {
            let count = try administrator.run("EVAL", Self.search, "0", store.prefix, value)
            #expect(count == "0", "\(value)")
        }
        // The search finds what is there.
        #expect(try administrator.run("EVAL", Self.search, "0", store.prefix, "Europe/") != "0")
    }

    @Test func `of a person is what was said for all devices, and no more`() throws {
        let server = try RedisServer()
        let store = try RedisStore(server: server)
        let rig = try IndexRig(store)
        let told =
            #","opt_outs":["news"],"quiet_hours":{"from":"22:00","to":"07:30"},"locale":"de-AT","#
            + #""time_zone":"Europe/Vienna","unread":3"#
        #expect(
            try rig.apply(try person(told + Self.surplusMembers), at: place(9)) == .applied)
        let administrator = try Operator(server)
        #expect(try administrator.run("EVAL", Self.list, "0", store.prefix) == "u:shop:u-1 @")
        let value = try administrator.run(
            "EVAL", "return redis.call('HGET', redis.call('KEYS', ARGV[1])[1], '@')", "0",
            "\(store.prefix)*:u:shop:u-1")
        #expect(
            value.split(separator: "\0") == [
                "0:9:1000009:4:3", "1320-450", "Europe/Vienna", "de-AT", "news",
            ])
    }
}
