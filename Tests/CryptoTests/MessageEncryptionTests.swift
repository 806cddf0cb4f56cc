import Base
import Glibc
import Testing

@testable import Crypto

/// The values of RFC 8291, section 5 and appendix A.
private enum Published {
    static let plaintext = "When I grow up, I want to be a watermelon"
    static let p256dh =
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
    static let auth = "BTBZMqHH6r4Tts7J_aSIgg"
    static let scalar = "yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw"
    static let salt = "DGv6ra1nlYgDCS1FRnbzlw"
    static let body =
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAm"
        + "S6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxs"
        + "j_Qulcy4a-fN"
    static let paddedBody =
        "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAm"
        + "S6TlzAC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGOSrn-v4Dt5"
        + "b4V4q8D0fIMdvsOqXR0upuR73g"

    static func bytes(_ text: String) -> [UInt8] { Base64URL.decode(text.utf8) ?? [] }
    static func keys() throws -> SubscriptionKeys {
        try SubscriptionKeys(p256dh: p256dh, auth: auth)
    }
}

@Suite struct `The encryption of web push messages` {
    private func body(padding: Int = 0) throws -> String {
        let body = ByteWriter()
        try MessageEncryptor().encrypt(
            Array(Published.plaintext.utf8), for: Published.keys(),
            salt: Published.bytes(Published.salt), scalar: Published.bytes(Published.scalar),
            padding: padding, into: body)
        return Base64URL.encode(body.array)
    }

    @Test func `the published message comes out byte by byte`() throws {
        #expect(try body() == Published.body)
        #expect(Published.bytes(Published.body).count == 144)
    }

    @Test func `padding is zeros behind the delimiter`() throws {
        #expect(try body(padding: 10) == Published.paddedBody)
    }

    @Test func `a browser reads what was published, padded or not`() throws {
        let browser = try #require(
            SubscriberKeys(
                scalar: Published.bytes("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"),
                auth: Published.bytes(Published.auth)))
        #expect(browser.p256dh == Published.p256dh && browser.auth == Published.auth)
        for body in [Published.body, Published.paddedBody] {
            #expect(browser.decrypt(Published.bytes(body)) == Array(Published.plaintext.utf8))
        }
    }

    @Test func `a browser reads nothing that is not for it or was changed`() throws {
        let scalar = [UInt8](repeating: 7, count: 32)
        let browser = try #require(
            SubscriberKeys(scalar: scalar, auth: [UInt8](repeating: 1, count: 16)))
        #expect(browser.decrypt(Published.bytes(Published.body)) == nil)
        let body = ByteWriter()
        let message = Array("hello".utf8)
        try message.withUnsafeBytes { message in
            try MessageEncryptor().encrypt(
                message, for: SubscriptionKeys(p256dh: browser.p256dh, auth: browser.auth),
                into: body)
        }
        #expect(browser.decrypt(body.array) == message)
        for index in [0, 20, 40, 90, body.count - 1] {
            var changed = body.array
            changed[index] ^= 1
            #expect(browser.decrypt(changed) == nil)
        }
        for count in [0, 20, 86, 102, body.count - 1] {
            #expect(browser.decrypt(Array(body.array.prefix(count))) == nil)
        }
        let zero = [UInt8](repeating: 0, count: 32)
        #expect(SubscriberKeys(scalar: zero, auth: [UInt8](repeating: 1, count: 16)) == nil)
        #expect(SubscriberKeys(scalar: scalar, auth: [1]) == nil)
    }

    /// RFC 8188, section 2.1: the size of a record counts its padding and its tag, and no tag covers
    /// the header that tells it.
    @Test func `a browser holds a record to the size that its header tells`() throws {
        let browser = try #require(
            SubscriberKeys(
                scalar: Published.bytes("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"),
                auth: Published.bytes(Published.auth)))
        let body = Published.bytes(Published.paddedBody)
        let recordBytes = body.count - 86
        for (size, isRead) in [
            (recordBytes, true), (recordBytes - 1, false), (17, false), (0, false),
        ] {
            var changed = body
            for place in 0..<4 { changed[16 + place] = UInt8(size >> (24 - 8 * place) & 0xFF) }
            #expect((browser.decrypt(changed) != nil) == isRead, "\(size)")
        }
    }

    @Test func `HKDF gives the published keys`() throws {
        // RFC 8291: the keying material from the shared secret and auth.
        let secret = Published.bytes("kyrL1jIIOHEzg3sM2ZWRHDRB62YACZhhSlknJ672kSs")
        let info = Published.bytes(
            "V2ViUHVzaDogaW5mbwAEJXGyvs3942BVGq8e0PTNNmwRzr5VX4m8t7GGpTM5FzFo7OLr4BhZe9MEebhuPI-OztV3"
                + "ylkYfpJGmQ22ggCLDgT-M_SrDepxkU21WCP3O1SUj0EwbZIHMtu5pZpTKGSCIA5Zent7wmC6HCJ5mFgJkuk5"
                + "cwAvMBKiiujwa7t45ewP")
        #expect(
            derived(secret, Published.bytes(Published.auth), info, 32)
                == "S4lYMb_L0FxCeq0WhDx813KgSYqU26kOyzWUdsXYyrg")
        // RFC 8188, section 3.1: another material, its key and nonce.
        let material = Published.bytes("yqdlZ-tYemfogSmv7Ws5PQ")
        let salt = Published.bytes("I1BsxtFttlv3u_Oo94xnmw")
        #expect(
            derived(material, salt, Array("Content-Encoding: aes128gcm\0".utf8), 16)
                == "_wniytB-ofscZDh4tbSjHw")
        #expect(
            derived(material, salt, Array("Content-Encoding: nonce\0".utf8), 12)
                == "Bcs8gkIRKLI8GeI8")
    }

    private func derived(
        _ material: [UInt8], _ salt: [UInt8], _ info: [UInt8], _ count: Int
    ) -> String {
        var output = [UInt8](repeating: 0, count: count)
        material.withUnsafeBytes { material in
            salt.withUnsafeBytes { salt in
                info.withUnsafeBytes { info in
                    output.withUnsafeMutableBytes {
                        HKDFSHA256.derive(from: material, salt: salt, info: info, into: $0)
                    }
                }
            }
        }
        return Base64URL.encode(output)
    }

    @Test func `no two messages share salt or key`() throws {
        let encryptor = try MessageEncryptor()
        let keys = try Published.keys()
        var salts: Set<[UInt8]> = []
        var senders: Set<[UInt8]> = []
        for _ in 0..<50 {
            let body = ByteWriter()
            try Array("same text".utf8).withUnsafeBytes { text in
                try encryptor.encrypt(text, for: keys, into: body)
            }
            #expect(body.count == 9 + MessageEncryptor.overheadBytes)
            salts.insert(Array(body.bytes[..<16]))
            senders.insert(Array(body.bytes[21..<86]))
        }
        #expect(salts.count == 50 && senders.count == 50)
    }

    @Test func `the largest message fills what services have to take`() throws {
        let body = ByteWriter()
        let text = [UInt8](repeating: 0x61, count: MessageEncryptor.plaintextBytesMax)
        try text.withUnsafeBytes {
            try MessageEncryptor().encrypt($0, for: Published.keys(), into: body)
        }
        #expect(MessageEncryptor.plaintextBytesMax == 3993)
        #expect(body.count == 4096)
    }

    @Test func `broken subscription keys are refused with their fault`() {
        func problem(_ p256dh: String, _ auth: String) -> String? {
            do throws(SubscriptionKeyError) {
                _ = try SubscriptionKeys(p256dh: p256dh, auth: auth)
                return nil
            } catch { return error.description }
        }
        let point = Published.bytes(Published.p256dh)
        #expect(problem(Published.p256dh, Published.auth) == nil)
        #expect(problem(Published.p256dh + "=", Published.auth + "==") == nil)
        #expect(problem(Published.auth, Published.p256dh)?.contains("auth has 65") == true)
        #expect(problem(Base64URL.encode(Array(Published.p256dh.utf8)), Published.auth) != nil)
        #expect(problem(Base64URL.encode([2] + point[1...32]), Published.auth) != nil)
        #expect(problem(Base64URL.encode(point[1...]), Published.auth) != nil)
        let zeros = Base64URL.encode([4] + [UInt8](repeating: 0, count: 64))
        #expect(problem(zeros, Published.auth)?.contains("curve") == true)
        var moved = point
        moved[64] ^= 1
        #expect(problem(Base64URL.encode(moved), Published.auth)?.contains("curve") == true)
        #expect(
            problem(Published.p256dh, Base64URL.encode([UInt8](repeating: 1, count: 15))) != nil)
        #expect(problem("not base64!", Published.auth)?.contains("base64url") == true)
    }

    /// CPU time, not wall time, and the best of several rounds: what others do on the machine does
    /// not count.
    @Test func `encryption costs at most 150 microseconds of CPU`() throws {
        let encryptor = try MessageEncryptor()
        let keys = try Published.keys()
        let text = [UInt8](repeating: 0x7A, count: 400)
        let body = ByteWriter(capacity: 1024)
        var best = Double.infinity
        for _ in 0..<5 {
            let start = threadNanos()
            for _ in 0..<200 {
                body.removeAll()
                try text.withUnsafeBytes { try encryptor.encrypt($0, for: keys, into: body) }
            }
            best = min(best, Double(threadNanos() - start) / 200 / 1000)
        }
        print("web push encryption: \(best) us of CPU per message of 400 bytes")
        #expect(best <= 150)
    }

    private func threadNanos() -> Int64 {
        var time = timespec()
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time)
        return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
    }
}

@Suite struct `Keys of VAPID` {
    @Test func `a private scalar gives its public point`() throws {
        // The receiver's pair of RFC 8291, section 5.
        let key = try SigningKey(
            p256Scalar: Published.bytes("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"),
            setting: "test")
        #expect(key.verifyingKey.p256Point == Published.bytes(Published.p256dh))
    }

    @Test func `the token of RFC 8292 verifies under its key`() throws {
        let token =
            "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL3B1c2guZXhhbXBsZS5uZXQiLCJleHAi"
            + "OjE0NTM1MjM3NjgsInN1YiI6Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0.i3CYb7t4xfxCDquptFOepC9GAu_"
            + "HLGkMlMuCGSK2rpiUfnK9ojFwDXb1JrErtmysazNjjvW2L9OkSSHzvoD1oA"
        let point = Published.bytes(
            "BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYic-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs"
        )
        let jwt = try #require(JWT(token))
        let key = try #require(VerifyingKey(p256Point: point))
        #expect(jwt.isSigned(by: key))
        #expect(key.p256Point == point)
        let other = try #require(VerifyingKey(p256Point: Published.bytes(Published.p256dh)))
        #expect(!jwt.isSigned(by: other))
    }

    @Test func `what is no scalar or point is refused`() {
        #expect(throws: KeyError.self) {
            try SigningKey(p256Scalar: [UInt8](repeating: 0, count: 32), setting: "test")
        }
        #expect(throws: KeyError.self) {
            try SigningKey(p256Scalar: [UInt8](repeating: 255, count: 32), setting: "test")
        }
        #expect(throws: KeyError.self) { try SigningKey(p256Scalar: [1, 2], setting: "test") }
        #expect(VerifyingKey(p256Point: [UInt8](repeating: 4, count: 65)) == nil)
    }
}
