import Base
import Testing

@testable import Crypto

@Suite struct `Content for one device` {
    private let key: DevicePrivateKey
    private let deviceKey: DeviceKey
    private let sealer: ContentSealer

    init() throws {
        key = try DevicePrivateKey.generate()
        deviceKey = try #require(DeviceKey(id: "k1", x: key.x, y: key.y))
        sealer = try ContentSealer()
    }

    private func seal(
        _ text: String, producer: String = "shop", recipient: [UInt8] = Array(1...16)
    ) throws -> String {
        let message = ByteWriter()
        try Array(text.utf8).withUnsafeBytes { plaintext in
            try Array(producer.utf8).withUnsafeBytes { producer in
                try recipient.withUnsafeBytes { recipient in
                    try sealer.seal(
                        plaintext, for: deviceKey, producer: producer, recipient: recipient,
                        into: message)
                }
            }
        }
        return message.text
    }

    /// Takes a message apart with the coordinates that stand in its header.
    private func parts(of message: String) throws -> DevicePrivateKey.Parts {
        let pieces = message.split(separator: ".", omittingEmptySubsequences: false)
        try #require(pieces.count == 5 && pieces[1].isEmpty)
        func decoded(_ text: some StringProtocol) throws -> [UInt8] {
            try #require(Base64URL.decode(Array(text.utf8)))
        }
        let header = String(decoding: try decoded(pieces[0]), as: UTF8.self)
        func member(_ name: String) throws -> [UInt8] {
            let start = try #require(header.firstRange(of: "\"\(name)\":\"")).upperBound
            return try decoded(header[start...].prefix { $0 != "\"" })
        }
        return DevicePrivateKey.Parts(
            header: Array(pieces[0].utf8), x: try member("x"), y: try member("y"),
            producer: try member("apu"), recipient: try member("apv"),
            nonce: try decoded(pieces[2]), text: try decoded(pieces[3]), tag: try decoded(pieces[4])
        )
    }

    @Test func `the derived key is the one of RFC 7518, appendix C`() {
        let secret: [UInt8] = [
            158, 86, 217, 29, 129, 113, 53, 211, 114, 131, 66, 131, 191, 132, 38, 156, 251, 49, 110,
            163, 218, 128, 106, 72, 246, 218, 167, 121, 140, 254, 144, 196,
        ]
        var derived = [UInt8](repeating: 0, count: 16)
        secret.withUnsafeBytes { secret in
            Array("Alice".utf8).withUnsafeBytes { alice in
                Array("Bob".utf8).withUnsafeBytes { bob in
                    derived.withUnsafeMutableBytes { derived in
                        ConcatKDF.derive(
                            from: secret, for: "A128GCM", producer: alice, recipient: bob,
                            scratch: ByteWriter(), into: derived)
                    }
                }
            }
        }
        #expect(Base64URL.encode(derived) == "VqqN6vgjbSBcIijNcacQGg")
    }

    @Test func `the shared secret is the one of RFC 7518, appendix C`() throws {
        func bytes(_ text: String) throws -> [UInt8] { try #require(Base64URL.decode(text.utf8)) }
        let alice = try P256Agreement()
        try alice.use(scalar: try bytes("0_NxaRPUMQoAJt50Gz8YiTr8gRTwyEaCumd-MToTmIo"))
        let bob = try #require(
            P256Point(
                [4] + bytes("weNJy2HscCSM6AEDTDg04biOvhFhyyWvOHQfeF_PxMQ")
                    + bytes("e8lnCO-AlStT-NJVX-crhB7QRYhiix03illJOVAOyck")))
        var secret = [UInt8](repeating: 0, count: 32)
        try secret.withUnsafeMutableBytes { try alice.writeSharedSecret(with: bob, into: $0) }
        #expect(secret.prefix(4) == [158, 86, 217, 29] && secret.suffix(2) == [144, 196])
    }

    @Test func `the device reads it, and who it is from and for`() throws {
        for text in ["{}", String(repeating: "é", count: 1500), "a", "ab", "abc"] {
            let message = try seal(text)
            let parts = try parts(of: message)
            #expect(key.open(parts).map { String(decoding: $0, as: UTF8.self) } == text)
            #expect(parts.producer == Array("shop".utf8) && parts.recipient == Array(1...16))
            #expect(parts.text.count == text.utf8.count)
            let header = String(
                decoding: try #require(Base64URL.decode(parts.header)), as: UTF8.self)
            #expect(
                header.hasPrefix(
                    #"{"alg":"ECDH-ES","enc":"A256GCM","kid":"k1","epk":{"kty":"EC","crv":"P-256","#
                ))
        }
    }

    @Test func `no two messages are alike`() throws {
        let messages = try (0..<20).map { _ in try seal("the same") }
        #expect(Set(messages).count == 20)
        let nonces = try messages.map { try parts(of: $0).nonce }
        #expect(Set(nonces).count == 20)
        #expect(Set(try messages.map { try parts(of: $0).x }).count == 20)
    }

    @Test func `nothing can be changed, and no other key opens it`() throws {
        let whole = try parts(of: try seal("secret"))
        func opens(_ change: (inout DevicePrivateKey.Parts) -> Void) -> Bool {
            var parts = whole
            change(&parts)
            return key.open(parts) != nil
        }
        #expect(opens { _ in })
        #expect(!opens { $0.text[0] ^= 1 })
        #expect(!opens { $0.tag[15] ^= 1 })
        #expect(!opens { $0.nonce[0] ^= 1 })
        #expect(!opens { $0.header[5] ^= 1 })
        #expect(!opens { $0.producer = Array("bank".utf8) })
        #expect(!opens { $0.recipient[0] ^= 1 })
        #expect(!opens { $0.tag.removeLast() })
        #expect(!opens { $0.x[0] ^= 1 })
        #expect(try DevicePrivateKey.generate().open(whole) == nil)
    }

    @Test func `a key is a point of the curve with a short name`() throws {
        let (x, y) = (key.x, key.y)
        var off = y
        off[31] ^= 1
        #expect(DeviceKey(id: "k", x: x, y: off) == nil)
        #expect(DeviceKey(id: "k", x: x, y: Array(y.dropLast())) == nil)
        #expect(DeviceKey(id: "k", x: x + [0], y: y) == nil)
        let zero = [UInt8](repeating: 0, count: 32)
        #expect(DeviceKey(id: "k", x: zero, y: zero) == nil)
        #expect(DeviceKey(id: "k", x: [UInt8](repeating: 255, count: 32), y: y) == nil)
        #expect(DeviceKey(id: "", x: x, y: y) == nil)
        #expect(DeviceKey(id: String(repeating: "k", count: 64), x: x, y: y) != nil)
        #expect(DeviceKey(id: String(repeating: "k", count: 65), x: x, y: y) == nil)
        #expect(DevicePrivateKey(scalar: zero) == nil)
        #expect(DevicePrivateKey(scalar: [UInt8](repeating: 255, count: 32)) == nil)
    }
}
