import Base
import Testing

@testable import Crypto

@Suite struct `Keys and signatures` {
    private func pair(_ algorithm: SignatureAlgorithm) throws -> (SigningKey, VerifyingKey) {
        let pair = try KeyPair.generate(for: algorithm)
        return (
            try SigningKey(pem: pair.privateKeyPEM, for: algorithm, setting: "private"),
            try VerifyingKey(pem: pair.publicKeyPEM, for: algorithm, setting: "public")
        )
    }

    @Test func `AUTH-09: twenty thousand ES256 signatures are 64 bytes each and verify`() throws {
        let (signing, verifying) = try pair(.es256)
        var startsWithZero = 0
        for number in 0..<20_000 {
            let message = Array("claims \(number)".utf8)
            let signature = try signing.signature(of: message)
            guard signature.count == 64, verifying.isValid(signature, of: message) else {
                Issue.record("signature \(number) has \(signature.count) bytes or fails")
                return
            }
            if signature[0] == 0 || signature[32] == 0 { startsWithZero += 1 }
        }
        // About 0.78 % have a short number; none among 20,000 would mean that padding went unseen.
        #expect(startsWithZero > 0)
    }

    @Test func `AUTH-09: a number of 31 bytes is padded on the left`() throws {
        let short = [UInt8](repeating: 0x11, count: 31)
        let long = [UInt8](repeating: 0x22, count: 32)
        let der = [0x30, 0x43, 0x02, 0x1F] + short + [0x02, 0x20] + long
        let raw = try #require(ECDSASignature.raw(fromDER: der))
        #expect(raw == [0] + short + long)
        #expect(ECDSASignature.der(fromRaw: raw) == der)
        #expect(Base64URL.encode(raw).utf8.count == 86)
    }

    @Test func `a signature of another message, key or length is refused`() throws {
        for algorithm in SignatureAlgorithm.allCases {
            let (signing, verifying) = try pair(algorithm)
            let (_, stranger) = try pair(algorithm)
            let message = Array("a message".utf8)
            let signature = try signing.signature(of: message)
            #expect(verifying.isValid(signature, of: message))
            #expect(signing.verifyingKey.isValid(signature, of: message))
            #expect(!verifying.isValid(signature, of: Array("another".utf8)))
            #expect(!stranger.isValid(signature, of: message))
            #expect(!verifying.isValid(Array(signature.dropLast()), of: message))
            #expect(!verifying.isValid([], of: message))
        }
    }

    @Test func `RS256 is deterministic and as long as the modulus`() throws {
        let (signing, _) = try pair(.rs256)
        let message = Array("a message".utf8)
        let first = try signing.signature(of: message)
        #expect(first.count == 256)
        #expect(try signing.signature(of: message) == first)
    }

    @Test func `AUTH-11: a key survives every spelling that settings give it`() throws {
        let text = try KeyPair.generate(for: .es256).privateKeyPEM
        let lines = text.split(separator: "\n").map(String.init)
        let body = lines.dropFirst().dropLast().joined()
        let spellings = [
            text,
            text.replacing("\n", with: "\r\n"),
            text.replacing("\n", with: "\\n"),
            [lines[0], body, lines[lines.count - 1]].joined(separator: "\n"),
            text.replacing("\n", with: "  \n") + "   ",
            String(text.dropLast()),
            text.replacing("\n", with: " "),
            "\"" + text + "\"",
        ]
        let message = Array("a message".utf8)
        let first = try SigningKey(pem: text, for: .es256, setting: "key")
        for spelling in spellings {
            let key = try SigningKey(pem: spelling, for: .es256, setting: "key")
            let signature = try key.signature(of: message)
            #expect(first.verifyingKey.isValid(signature, of: message))
        }
    }

    @Test func `AUTH-11: a damaged key is refused by the name of its setting`() throws {
        let pair = try KeyPair.generate(for: .es256)
        let text = pair.privateKeyPEM
        let rsa = try KeyPair.generate(for: .rs256).privateKeyPEM
        let lines = text.split(separator: "\n").map(String.init)
        let cut = [lines[0], String(lines[1].prefix(40)), lines[lines.count - 1]]
        let damaged = [
            "", "  \n", "AuthKey_ABC.p8", lines[0], lines.dropLast().joined(separator: "\n"),
            cut.joined(separator: "\n"), text.replacing("A", with: "*"), rsa, pair.publicKeyPEM,
            text.replacing("PRIVATE KEY", with: "ENCRYPTED PRIVATE KEY"),
            text.replacing("END PRIVATE KEY", with: "END CERTIFICATE"),
        ]
        for spelling in damaged {
            let error = #expect(throws: KeyError.self) {
                try SigningKey(pem: spelling, for: .es256, setting: "apns.key_file")
            }
            #expect(error?.description.hasPrefix("apns.key_file: ") == true)
            #expect(error?.description.contains(lines[1].prefix(8)) == false)
        }
    }

    @Test func `a JWT comes apart into what went in`() throws {
        let (signing, verifying) = try pair(.es256)
        let text = try JWT.signed(
            header: #"{"alg":"ES256","kid":"ABC123DEFG"}"#, claims: #"{"iat":1}"#, with: signing)
        let token = try #require(JWT(text))
        #expect(String(decoding: token.header, as: UTF8.self).contains("ABC123DEFG"))
        #expect(token.claims == Array(#"{"iat":1}"#.utf8))
        #expect(token.signature.count == 64)
        #expect(token.isSigned(by: verifying))
        #expect(!text.contains("="))
        for broken in ["", "a.b", "a.b.c.d", text + ".x", text + "=", "!.!.!"] {
            #expect(JWT(broken) == nil)
        }
    }
}
