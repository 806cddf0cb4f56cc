import Base
import Crypto
import Testing

@Suite struct `Digests and name-based identifiers` {
    @Test func `SHA-256 and SHA-1 give the published values`() {
        #expect(
            SHA256Digest(of: "abc").hex
                == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad")
        #expect(
            SHA256Digest(of: [UInt8]()).hex
                == "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855")
        #expect(SHA256Digest(of: "abc").shortHex == "ba7816bf")
        #expect(
            Hex.encode(SHA1.digest(of: Array("abc".utf8)))
                == "a9993e364706816aba3e25717850c26c9cd0d89d")
    }

    @Test func `equal inputs give equal digests, other inputs others`() {
        #expect(SHA256Digest(of: "a") == SHA256Digest(of: [0x61]))
        #expect(SHA256Digest(of: "a") != SHA256Digest(of: "b"))
        #expect(SHA256Digest(of: "a").bytes.count == 32)
    }

    @Test func `HMAC gives the value of RFC 4231, test case 2`() {
        let code = HMACSHA256.code(
            for: Array("what do ya want for nothing?".utf8), key: Array("Jefe".utf8))
        #expect(
            code.hex == "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843")
    }

    @Test func `a version 5 identifier is the one every library makes`() throws {
        let dns = try #require(UUIDBytes("6ba7b810-9dad-11d1-80b4-00c04fd430c8"))
        let made = UUIDv5.make(namespace: dns, name: "www.example.com")
        #expect(made.text == "2ed6657d-e927-568b-95e1-2665a8aea6a2")
    }
}
