import Base
import Crypto
import Gateways
import JSON
import Testing

@Suite struct `VAPID tokens` {
    private let fcm = "https://fcm.googleapis.com"
    private let mozilla = "https://updates.push.services.mozilla.com"
    private let start = MonotonicTime(nanos: 0)

    private func source(_ ids: String...) throws -> VAPIDTokenSource {
        VAPIDTokenSource(
            subject: "mailto:ops@example.com", keys: try ids.map { try Web.key($0) })
    }

    private struct Parts {
        let jwt: JWT
        let key: VerifyingKey
        let claims: (aud: String?, exp: Int64?, sub: String?)

        init(_ token: VAPIDToken) throws {
            let text = String(decoding: token.header, as: UTF8.self)
            #expect(text.hasPrefix("vapid t="))
            let parts = text.dropFirst(8).split(separator: ",")
            #expect(parts.count == 2 && parts[1].hasPrefix(" k="))
            #expect(!parts[1].dropFirst(3).contains("="))
            jwt = try #require(JWT(String(parts[0])))
            let point = try #require(Base64URL.decode(parts[1].dropFirst(3).utf8))
            key = try #require(VerifyingKey(p256Point: point))
            let object = try JSONParser().parse(jwt.claims)
            claims = (object["aud"]?.string, object["exp"]?.int64, object["sub"]?.string)
        }
    }

    @Test func `a token says whom, until when and who, and verifies`() throws {
        var source = try source("v1")
        let parts = try Parts(try source.token(for: fcm, keyID: nil, at: start, wall: newYear))
        #expect(parts.claims.aud == fcm)
        #expect(parts.claims.exp == newYear.seconds + 12 * 3600)
        #expect(parts.claims.sub == "mailto:ops@example.com")
        #expect(parts.jwt.isSigned(by: parts.key))
        #expect(parts.jwt.signature.count == 64)
        #expect(String(decoding: parts.jwt.header, as: UTF8.self).contains(#""alg":"ES256""#))
    }

    @Test func `WP-03: one token for each origin and key, reused within its life`() throws {
        var source = try source("v1", "v2")
        for _ in 0..<50 {
            for (origin, key) in [(fcm, "v1"), (mozilla, "v1"), (fcm, "v2")] {
                let token = try source.token(for: origin, keyID: key, at: start, wall: newYear)
                #expect(try Parts(token).claims.aud == origin)
            }
        }
        #expect(source.mintCount == 3)
    }

    @Test func `WP-06: the registration's key signs, an unknown one is told`() throws {
        let keys = [try Web.key("k1"), try Web.key("k2")]
        var source = VAPIDTokenSource(subject: "mailto:a@example.com", keys: keys)
        for (id, key) in [(nil, keys[0]), ("k1", keys[0]), ("k2", keys[1])] {
            let token = try source.token(for: fcm, keyID: id, at: start, wall: newYear)
            #expect(String(decoding: token.header, as: UTF8.self).hasSuffix("k=" + key.publicKey))
        }
        #expect(throws: VAPIDFault.self) {
            try source.token(for: fcm, keyID: "k3", at: start, wall: newYear)
        }
    }

    @Test func `WP-05: a token is replaced before it ends`() throws {
        var source = try source("v1")
        let first = try source.token(for: fcm, keyID: nil, at: start, wall: newYear)
        let later = start + .hours(10)
        #expect(
            try source.token(for: fcm, keyID: nil, at: later, wall: newYear).generation
                == first.generation)
        let next = try source.token(
            for: fcm, keyID: nil, at: start + .hours(13), wall: newYear + .hours(13))
        #expect(next.generation != first.generation)
        #expect(try Parts(next).claims.exp == newYear.seconds + 25 * 3600)
    }

    @Test func `a refused token is replaced once an hour at most`() throws {
        var source = try source("v1")
        let first = try source.token(for: fcm, keyID: nil, at: start, wall: newYear)
        source.refuse(first.generation, at: start + .minutes(59))
        #expect(
            try source.token(for: fcm, keyID: nil, at: start + .minutes(59), wall: newYear)
                .generation == first.generation)
        source.refuse(first.generation, at: start + .minutes(61))
        source.refuse(first.generation, at: start + .minutes(61))
        let second = try source.token(
            for: fcm, keyID: nil, at: start + .minutes(61), wall: newYear)
        #expect(second.generation != first.generation && source.mintCount == 2)
    }

    @Test func `tokens of many origins are bounded`() throws {
        var source = try source("v1")
        for number in 0..<WebPushLimits.tokensMax + 10 {
            _ = try source.token(
                for: "https://p\(number).example", keyID: nil,
                at: start + .milliseconds(Int64(number)), wall: newYear)
        }
        let minted = source.mintCount
        _ = try source.token(
            for: "https://p2000.example", keyID: nil, at: start + .seconds(9), wall: newYear)
        #expect(source.mintCount == minted)
        _ = try source.token(
            for: "https://p0.example", keyID: nil, at: start + .seconds(9), wall: newYear)
        #expect(source.mintCount == minted + 1)
    }

    @Test func `WP-01: a subject that Apple refuses is refused at start`() {
        for good in ["mailto:ops@example.com", "https://example.com/push", "https://a.b.co"] {
            #expect(VAPIDSubject.problem(with: good) == nil, "\(good)")
        }
        for bad in [
            "ops@example.com", "mailto:ops@localhost", "mailto:x@app.local", "mailto:x@y.invalid",
            "", "mailto:", "mailto:@example.com", "https://localhost/x", "http://example.com",
            "mailto:a b@exa mple.com", "https://intranet", "mailto:x@example.test",
        ] { #expect(VAPIDSubject.problem(with: bad) != nil, "\(bad)") }
    }

    @Test func `WP-07: keys are read in every usual form, and pairs must be pairs`() throws {
        let scalar = "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"
        let json = #"{"publicKey":"\#(Web.p256dh)","privateKey":"\#(scalar)"}"#
        for text in [scalar, scalar + "\n", json] {
            let key = try VAPIDKey(id: "v1", text: text, setting: "test")
            #expect(key.publicKey == Web.p256dh)
        }
        let pem = try KeyPair.generate(for: .es256).privateKeyPEM
        #expect(throws: KeyError.self) {
            try VAPIDKey(id: "v1", text: pem, publicKey: Web.p256dh, setting: "test")
        }
        let other = try KeyPair.generate(for: .es256).privateKeyPEM
        let foreign = try VAPIDKey(id: "x", text: other, setting: "test").publicKey
        let error = #expect(throws: KeyError.self) {
            try VAPIDKey(
                id: "v1", text: #"{"publicKey":"\#(foreign)","privateKey":"\#(scalar)"}"#,
                setting: "apps.shop.webpush.keys")
        }
        #expect(error?.problem.contains("do not belong together") == true)
        #expect(error?.problem.contains(scalar) == false)
        for text in ["", "nonsense", "AAAA"] {
            #expect(throws: KeyError.self) { try VAPIDKey(id: "v1", text: text, setting: "test") }
        }
    }
}
