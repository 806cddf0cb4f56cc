// A device's public keys as its registration brings them: a list of `kid` and `jwk` (RFC 7517).
// Clients write them, so that everything about them is doubted.

internal import Base
public import Crypto
internal import JSON

/// What a registration's public keys offer.
public enum DeviceKeyChoice {
    /// The first key that content can be encrypted for.
    case key(DeviceKey)
    /// It has none.
    case absent
    /// It has some, and none of them can be used; the text says what is wrong with the first.
    case unusable(String)
}

/// Reads public keys out of registrations. Confined to one thread.
public final class DeviceKeyReader {
    /// Keys that are looked at; further ones are not.
    public static let keysMax = 8

    private let parser = JSONParser(maximumBytes: 1 << 16)

    /// A reader with its buffers.
    public init() {}

    /// Chooses from the JSON of a registration's `public_keys`.
    public func choose(from text: String?) -> DeviceKeyChoice {
        guard let text else { return .absent }
        guard let list = try? parser.parse(text), list.isArray else {
            return .unusable("public_keys is no list")
        }
        var choice = DeviceKeyChoice.absent
        var position = 0
        list.forEachElement { entry in
            defer { position += 1 }
            if case .key = choice { return }
            guard position < Self.keysMax else { return }
            do throws(Flaw) {
                choice = .key(try Self.key(entry))
            } catch {
                // The first one is what its client meant.
                if case .absent = choice {
                    choice = .unusable("public_keys[\(position)]: \(error.text)")
                }
            }
        }
        return choice
    }

    private struct Flaw: Error {
        let text: String

        init(_ text: String) { self.text = text }
    }

    /// RFC 7518, section 6.2.1: coordinates have the curve's full length. Of `use`, `alg` and
    /// `key_ops` only what forbids the use counts: browsers leave them out or empty.
    private static func key(_ entry: JSONValue) throws(Flaw) -> DeviceKey {
        guard let id = entry["kid"]?.string, (1...DeviceKey.idBytesMax).contains(id.utf8.count)
        else { throw Flaw("kid is no text of 1 to \(DeviceKey.idBytesMax) bytes") }
        guard let jwk = entry["jwk"], jwk.isObject else { throw Flaw("jwk is no object") }
        guard jwk["kty"]?.string == "EC", jwk["crv"]?.string == "P-256" else {
            throw Flaw("a key of kty EC and crv P-256 is needed")
        }
        guard jwk["d"] == nil else {
            throw Flaw("jwk has its private half; the device must keep it")
        }
        guard jwk["use"]?.string ?? "enc" == "enc", jwk["alg"]?.string ?? "ECDH-ES" == "ECDH-ES"
        else { throw Flaw("use or alg are for something else than ECDH-ES") }
        guard let x = coordinate(jwk["x"]), let y = coordinate(jwk["y"]) else {
            throw Flaw("x and y are not 32 bytes in base64url")
        }
        guard let key = DeviceKey(id: id, x: x, y: y) else {
            throw Flaw("x and y are no point of the curve")
        }
        return key
    }

    private static func coordinate(_ value: JSONValue?) -> [UInt8]? {
        guard let text = value?.stringBytes, text.count <= 44,
            let bytes = Base64URL.decode(text), bytes.count == 32
        else { return nil }
        return bytes
    }
}
