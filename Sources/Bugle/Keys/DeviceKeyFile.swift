// A device's key as a file: a JSON Web Key (RFC 7517) with its private half, for whoever tries out
// an app's decryption without the app.

internal import Base
internal import Crypto
internal import JSON

internal struct DeviceKeyFile {
    let id: String
    let key: DevicePrivateKey

    init(id: String, key: DevicePrivateKey) {
        self.id = id
        self.key = key
    }

    /// Reads a key with its private half; nil when the text is something else.
    init?(_ text: String) {
        guard let root = try? JSONParser().parse(text), root["kty"]?.string == "EC",
            root["crv"]?.string == "P-256", let d = root["d"]?.string,
            let scalar = Base64URL.decode(d.utf8), let key = DevicePrivateKey(scalar: scalar)
        else { return nil }
        id = root["kid"]?.string ?? ""
        self.key = key
    }

    /// The file's text.
    var text: String {
        let bytes = ByteWriter()
        bytes.append("{\"kty\":\"EC\",\"crv\":\"P-256\",\"kid\":")
        bytes.append(jsonString: id)
        bytes.append(",\"use\":\"enc\",\"x\":\"\(Base64URL.encode(key.x))\"")
        bytes.append(",\"y\":\"\(Base64URL.encode(key.y))\"")
        bytes.append(",\"d\":\"\(Base64URL.encode(key.scalar.exposed))\"}\n")
        return bytes.text
    }

    /// The member `public_keys` of the device's registration.
    var publicKeys: String {
        let bytes = ByteWriter()
        bytes.append("[{\"kid\":")
        bytes.append(jsonString: id)
        bytes.append(",\"jwk\":{\"kty\":\"EC\",\"crv\":\"P-256\",\"use\":\"enc\"")
        bytes.append(",\"x\":\"\(Base64URL.encode(key.x))\"")
        bytes.append(",\"y\":\"\(Base64URL.encode(key.y))\"}}]")
        return bytes.text
    }
}
