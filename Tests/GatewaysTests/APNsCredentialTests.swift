import Base
import Crypto
import Gateways
import JSON
import Testing

@Suite struct `Provider tokens` {
    private static let pair = Result { try KeyPair.generate(for: .es256) }

    private func source(seed: UInt64 = 1) throws -> APNsTokenSource {
        let key = try SigningKey(
            pem: try Self.pair.get().privateKeyPEM, for: .es256, setting: "key")
        return APNsTokenSource(
            teamID: "TEAM123456", keyID: "KEY1234567", key: key,
            random: SeededRandom(seed: seed))
    }

    private func issuedAt(_ token: ProviderToken) throws -> Int64? {
        let text = String(decoding: token.header, as: UTF8.self)
        let jwt = try #require(JWT(String(text.dropFirst("bearer ".count))))
        return try JSONParser().parse(jwt.claims)["iat"]?.int64
    }

    @Test func `a token has the claims and the signature that Apple asks for`() throws {
        let time = ManualTime()
        var source = try source()
        let token = try source.token(at: time.monotonic, wall: time.wall)
        let text = String(decoding: token.header, as: UTF8.self)
        #expect(text.hasPrefix("bearer "))
        let jwt = try #require(JWT(String(text.dropFirst(7))))
        #expect(
            String(decoding: jwt.header, as: UTF8.self) == #"{"alg":"ES256","kid":"KEY1234567"}"#)
        #expect(
            String(decoding: jwt.claims, as: UTF8.self)
                == #"{"iss":"TEAM123456","iat":1735689600}"#)
        #expect(jwt.signature.count == 64)
        let key = try VerifyingKey(
            pem: try Self.pair.get().publicKeyPEM, for: .es256, setting: "key")
        #expect(jwt.isSigned(by: key))
    }

    @Test func `AUTH-03: age counts from the mint`() throws {
        let time = ManualTime()
        var source = try source()
        func token(_ minutes: Int64) throws -> UInt64 {
            time.advance(by: .minutes(minutes))
            return try source.token(at: time.monotonic, wall: time.wall).generation
        }
        let first = try token(45)
        #expect(try token(11) == first)
        #expect(try token(50) != first)
    }

    @Test func `a token is replaced between 40 and 50 minutes, at times that differ`() throws {
        var ages: Set<Int64> = []
        for seed in 0..<40 as Range<UInt64> {
            let time = ManualTime()
            var source = try source(seed: seed)
            let first = try source.token(at: time.monotonic, wall: time.wall).generation
            var seconds: Int64 = 0
            while try source.token(at: time.monotonic, wall: time.wall).generation == first {
                time.advance(by: .seconds(1))
                seconds += 1
            }
            #expect((2400...3001).contains(seconds))
            ages.insert(seconds)
        }
        #expect(ages.count > 20)
    }

    @Test func `AUTH-05: however often a token is refused, none is minted within 20 minutes`()
        throws
    {
        let time = ManualTime()
        var source = try source()
        var token = try source.token(at: time.monotonic, wall: time.wall)
        for _ in 0..<3600 {
            time.advance(by: .seconds(1))
            token = try source.token(
                insteadOf: token.generation, at: time.monotonic, wall: time.wall)
        }
        // One at the start, then one at 20, 40 and 60 minutes.
        #expect(source.mintCount == 4)
    }

    @Test func `all pushes that a token failed get the same new one`() throws {
        let time = ManualTime()
        var source = try source()
        let old = try source.token(at: time.monotonic, wall: time.wall)
        time.advance(by: .minutes(30))
        let generations = try (0..<50).map { _ in
            try source.token(insteadOf: old.generation, at: time.monotonic, wall: time.wall)
                .generation
        }
        #expect(Set(generations) == [2])
    }

    @Test func `AUTH-06: a step of the wall clock neither pins nor renews a token`() throws {
        let time = ManualTime()
        var source = try source()
        let first = try source.token(at: time.monotonic, wall: time.wall).generation
        time.step(wall: .minutes(-30))
        time.advance(by: .minutes(40))
        #expect(try source.token(at: time.monotonic, wall: time.wall).generation == first)
        time.advance(by: .minutes(21))
        let second = try source.token(at: time.monotonic, wall: time.wall)
        #expect(second.generation != first)
        #expect(try issuedAt(second) == time.wall.seconds)
        time.step(wall: .hours(5))
        #expect(
            try source.token(at: time.monotonic, wall: time.wall).generation == second.generation)
    }

    @Test func `AUTH-01 and AUTH-02: apps and lanes with one key share one token`() async throws {
        let pem = try Self.pair.get().privateKeyPEM
        let cache = ProviderTokenCache()
        let shop = try cache.credential(
            teamID: "TEAM123456", keyID: "KEY1234567", pem: pem, setting: "apps.shop.apns")
        let chat = try cache.credential(
            teamID: "TEAM123456", keyID: "KEY1234567", pem: pem, setting: "apps.chat.apns")
        #expect(shop === chat)
        let other = try cache.credential(
            teamID: "TEAM123456", keyID: "OTHER12345", pem: pem, setting: "apps.x.apns")
        #expect(other !== shop)
        let time = ManualTime()
        for _ in 0..<2 {
            let tokens = await withTaskGroup(of: UInt64?.self) { group in
                for lane in 0..<50 {
                    group.addTask {
                        let credential = lane % 2 == 0 ? shop : chat
                        return try? credential.token(at: time.monotonic, wall: time.wall)
                            .generation
                    }
                }
                return await group.reduce(into: Set<UInt64?>()) { $0.insert($1) }
            }
            #expect(tokens.count == 1)
            time.advance(by: .minutes(51))
        }
        #expect(shop.mintCount == 2)
    }

    @Test func `ids that cannot be Apple's are refused by name`() throws {
        let pem = try Self.pair.get().privateKeyPEM
        for (team, key, setting) in [
            ("TEAM", "KEY1234567", "apps.shop.apns.team_id"),
            ("TEAM123456", "KEY\"12345", "apps.shop.apns.key_id"),
        ] {
            let error = #expect(throws: KeyError.self) {
                try APNsCredential(
                    teamID: team, keyID: key, pem: pem, setting: "apps.shop.apns")
            }
            #expect(error?.setting == setting)
        }
    }
}
