import Base
import Crypto
import Testing

@testable import Gateways

/// Tokens that go from one replica to another, and the rules of their vendors on the way.
@Suite struct `Shared tokens` {
    private let wall = UnixMillis(1_735_689_600_000)
    private let start = MonotonicTime(nanos: 1_000_000_000_000)

    private func pair() throws -> (APNsCredential, APNsCredential) {
        let pem = try KeyPair.generate(for: .es256).privateKeyPEM
        func make() throws -> APNsCredential {
            try APNsCredential(
                teamID: "TEAM000001", keyID: "KEY0000001", pem: pem, setting: "test",
                random: SeededRandom(seed: 1))
        }
        return (try make(), try make())
    }

    @Test func `a token comes over whole, with its age`() throws {
        let (one, two) = try pair()
        #expect(one.sharedName == two.sharedName)
        let token = try one.token(at: start, wall: wall)
        let later = start + .minutes(10)
        let sealed = try #require(one.sealedToken(at: later))
        #expect(sealed.age == .minutes(10))
        #expect(two.adopt(sealed, at: later))
        #expect(try two.token(at: later, wall: wall).header == token.header)
        #expect(two.age(at: later) == .minutes(10))
        #expect(two.mintCount == 0)
        // It is due for both at the same time, and dies at the same time.
        #expect(!two.isTokenDue(at: start + .minutes(37)))
        #expect(two.isTokenDue(at: start + .minutes(38)))
        // Nothing newer comes of taking it again.
        #expect(!two.adopt(sealed, at: later))
    }

    @Test func `an older token never replaces a newer one`() throws {
        let (one, two) = try pair()
        _ = try one.token(at: start, wall: wall)
        let later = start + .minutes(5)
        let own = try two.token(at: later, wall: wall)
        #expect(!two.adopt(try #require(one.sealedToken(at: later)), at: later))
        #expect(try two.token(at: later, wall: wall).header == own.header)
    }

    @Test func `AUTH-14: a refused token does not come back, and its successor does`() throws {
        let keys = try KeyPair.generate(for: .rs256)
        func credential() throws -> OAuthCredential {
            let pem = keys.privateKeyPEM.replacing("\n", with: "\\n")
            let file =
                #"{"type":"service_account","project_id":"p","private_key_id":"k","private_key":""#
                + pem + #"","client_email":"a@p","token_uri":"https://localhost/token"}"#
            return OAuthCredential(
                try ServiceAccount(json: Array(file.utf8), setting: "test"),
                random: SeededRandom(seed: 1))
        }
        func fetch(_ name: String, _ credential: OAuthCredential, at now: MonotonicTime) throws {
            guard case .fetch(let fetch, _) = credential.next(at: now, wall: wall, isForced: true)
            else { throw KeyError(setting: "test", problem: "no call was wanted") }
            Array(#"{"access_token":"\#(name)","expires_in":3599}"#.utf8).withUnsafeBytes {
                credential.received(
                    GatewayAnswer(status: 200, body: $0, now: wall), for: fetch.number, at: now)
            }
        }
        let (one, two) = (try credential(), try credential())
        try fetch("first", one, at: start)
        let first = try #require(one.sealedToken(at: start))
        #expect(two.adopt(first, at: start))
        #expect(one.refusedTokenID == nil)
        // The first is refused, and has fetched a new one before the second hears of it.
        let generation = { (credential: OAuthCredential) in
            credential.current(at: self.start)?.token.generation ?? 0
        }
        one.refuse(generation(one), at: start + .seconds(10))
        #expect(one.refusedTokenID == first.id)
        try fetch("second", one, at: start + .seconds(10))
        let later = start + .seconds(12)
        two.refuse(generation(two), at: later)
        #expect(!two.hasToken(at: later) && two.refusedTokenID == first.id)
        #expect(!two.adopt(first, at: later))
        let second = try #require(one.sealedToken(at: later))
        #expect(second.id != first.id && !second.id.contains("second"))
        #expect(two.adopt(second, at: later))
        #expect(two.hasToken(at: later) && two.fetchCount == 0)
    }

    @Test func `whoever lacks the key, or changes the box, has nothing`() throws {
        let (one, two) = try pair()
        let (stranger, _) = try pair()
        _ = try one.token(at: start, wall: wall)
        var sealed = try #require(one.sealedToken(at: start))
        #expect(!stranger.adopt(sealed, at: start))
        let text = try #require(String(validating: one.current(at: start)!.header, as: UTF8.self))
        #expect(!String(decoding: sealed.bytes, as: UTF8.self).contains(text.suffix(20)))
        sealed.bytes[20] ^= 1
        #expect(!two.adopt(sealed, at: start))
        sealed.bytes = []
        #expect(!two.adopt(sealed, at: start))
    }

    @Test func `a held credential makes no token while it can do without, and then does`() throws {
        let (one, _) = try pair()
        let first = try one.token(at: start, wall: wall)
        let old = start + .minutes(52)
        one.hold(until: old + .seconds(3))
        #expect(try one.token(at: old, wall: wall).header == first.header)
        let over = start + .minutes(54)
        one.hold(until: over + .seconds(3))
        #expect(try one.token(at: over, wall: wall).header != first.header)
        // A process whose keeper has died goes on by itself.
        let (other, _) = try pair()
        let second = try other.token(at: start, wall: wall)
        other.hold(until: start + .minutes(51))
        #expect(
            try other.token(at: start + .minutes(51) + .seconds(1), wall: wall).header
                != second.header)
    }

    @Test func `a box is opened by the same key in any spelling, for the same purpose`() throws {
        let pair = try KeyPair.generate(for: .rs256)
        let key = try SigningKey(pem: pair.privateKeyPEM, for: .rs256, setting: "test")
        let box = try SealedBox(key, purpose: "one")
        let sealed = try box.seal(Array("text".utf8), context: "c")
        #expect(box.open(sealed, context: "c") == Array("text".utf8))
        #expect(box.open(sealed, context: "d") == nil)
        #expect(try SealedBox(key, purpose: "two").open(sealed, context: "c") == nil)
        #expect(try box.seal(Array("text".utf8), context: "c") != sealed)
    }
}
