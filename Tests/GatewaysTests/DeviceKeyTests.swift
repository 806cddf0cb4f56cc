import Base
import Crypto
import Gateways
import JSON
import Testing

@Suite struct `Public keys of devices` {
    private let reader = DeviceKeyReader()
    private let key: DevicePrivateKey

    init() throws { key = try DevicePrivateKey.generate() }

    private func entry(
        _ kid: String = "k1", _ jwk: String? = nil, kty: String = "EC", crv: String = "P-256",
        x: [UInt8]? = nil, y: [UInt8]? = nil, more: String = ""
    ) -> String {
        let own =
            #"{"kty":"\#(kty)","crv":"\#(crv)","x":"\#(Base64URL.encode(x ?? key.x))","#
            + #""y":"\#(Base64URL.encode(y ?? key.y))"\#(more)}"#
        return #"{"kid":"\#(kid)","jwk":\#(jwk ?? own)}"#
    }

    private func chosen(_ entries: String...) -> String? {
        if case .key(let key) = reader.choose(from: "[\(entries.joined(separator: ","))]") {
            key.id
        } else {
            nil
        }
    }

    private func flaw(_ text: String) -> String? {
        if case .unusable(let text) = reader.choose(from: text) { text } else { nil }
    }

    private func flaw(of entry: String) -> String? { flaw("[\(entry)]") }

    @Test func `the first usable key counts`() {
        #expect(chosen(entry("a"), entry("b")) == "a")
        #expect(chosen(entry("a", crv: "P-384"), entry("b")) == "b")
        // As browsers export them.
        #expect(chosen(entry(more: #","key_ops":[],"ext":true"#)) == "k1")
        #expect(chosen(entry(more: #","use":"enc","alg":"ECDH-ES","kid":"other""#)) == "k1")
    }

    @Test func `no keys are no fault`() {
        for text in [nil, "[]"] {
            guard case .absent = reader.choose(from: text) else {
                Issue.record("\(text ?? "nil")")
                continue
            }
        }
    }

    @Test func `what is wrong with a key is said without it`() {
        var off = key.y
        off[31] ^= 1
        #expect(
            flaw(of: entry(y: off)) == "public_keys[0]: x and y are no point of the curve")
        let curve = "public_keys[0]: a key of kty EC and crv P-256 is needed"
        #expect(flaw(of: entry(crv: "P-384")) == curve)
        #expect(flaw(of: entry(kty: "OKP", crv: "X25519")) == curve)
        #expect(flaw(of: entry(kty: "RSA")) == curve)
        let coordinates = "public_keys[0]: x and y are not 32 bytes in base64url"
        #expect(flaw(of: entry(x: Array(key.x.dropLast()))) == coordinates)
        #expect(flaw(of: entry(x: [0] + key.x)) == coordinates)
        #expect(flaw(of: entry(x: [UInt8](repeating: 1, count: 40_000))) == coordinates)
        #expect(flaw(of: entry("k1", #"{"kty":"EC","crv":"P-256"}"#)) == coordinates)
        #expect(
            flaw(of: entry("k1", #"{"kty":"EC","crv":"P-256","x":7,"y":{}}"#)) == coordinates)
        #expect(
            flaw(of: entry(more: #","d":"AAAA""#))
                == "public_keys[0]: jwk has its private half; the device must keep it")
        let use = "public_keys[0]: use or alg are for something else than ECDH-ES"
        #expect(flaw(of: entry(more: #","use":"sig""#)) == use)
        #expect(flaw(of: entry(more: #","alg":"ES256""#)) == use)
        #expect(flaw(of: entry("k1", "[]")) == "public_keys[0]: jwk is no object")
        let name = "public_keys[0]: kid is no text of 1 to 64 bytes"
        #expect(flaw(of: entry("")) == name)
        #expect(flaw(of: entry(String(repeating: "k", count: 65))) == name)
        #expect(flaw(of: #"{"jwk":{}}"#) == name)
        #expect(flaw(of: "7") == name)
        #expect(flaw("{}") == "public_keys is no list")
        #expect(flaw("[") == "public_keys is no list")
    }

    @Test func `a long list is not read to its end`() {
        let bad = Array(repeating: entry("x", crv: "P-521"), count: DeviceKeyReader.keysMax)
        #expect(chosen((bad.dropLast() + [entry("last")]).joined(separator: ",")) == "last")
        #expect(chosen((bad + [entry("late")]).joined(separator: ",")) == nil)
    }

    @Test func `a message is read as it was sealed`() throws {
        let deviceKey = try #require(DeviceKey(id: "k\"1", x: key.x, y: key.y))
        let message = ByteWriter()
        try Array("hello".utf8).withUnsafeBytes { text in
            try Event.message.bytes.withUnsafeBytes { id in
                try ContentSealer().seal(
                    text, for: deviceKey, producer: text, recipient: id, into: message)
            }
        }
        let sealed = try #require(SealedMessage(message.text))
        #expect(sealed.keyID == "k\"1" && sealed.app == "hello")
        #expect(sealed.messageID == Event.message.bytes)
        #expect(sealed.open(with: key) == Array("hello".utf8))
        #expect(sealed.open(with: try DevicePrivateKey.generate()) == nil)
        #expect(SealedMessage("a.b.c") == nil && SealedMessage("....") == nil)
        #expect(SealedMessage(message.text + ".x") == nil)
    }

    @Test func `it stands in the block at every gateway, and its bytes count`() throws {
        let event = try Event(#"{"notification":{"title":"x","mutable_content":true}}"#)
        let plain = Built(apns: event.content).body
        let sealed = ByteWriter()
        sealed.append("a.b.c")
        event.content.sealed = sealed
        let apns = Built(apns: event.content)
        #expect(try apns.json { $0["bugle"]?["jwe"]?.string } == "a.b.c")
        #expect(try apns.json { $0["aps"]?["mutable-content"]?.int64 } == 1)
        #expect(apns.body.utf8.count == plain.utf8.count + #","jwe":"a.b.c""#.utf8.count)
        let fcm = try Built(fcm: event.content).json { $0["message"]?["data"]?["bugle"]?.string }
        #expect(try #require(fcm).contains(#""jwe":"a.b.c""#))
        sealed.append(String(repeating: "x", count: 4096))
        #expect(Built(apns: event.content).isRejected(for: .localPayloadTooLarge))
        #expect(Built(fcm: event.content).isRejected(for: .localPayloadTooLarge))
    }
}
