internal import Base
internal import Crypto
internal import Gateways
internal import JSON

/// `bugle keys`: makes keys, and says what a file with a key is.
internal enum KeysCommand: Command {
    static let name = "keys"
    static let summary = "makes VAPID, APNs and device keys, and says what a key file holds"
    static let synopsis =
        "keys vapid|apns|device|inspect|open FILE [--kid ID] [--key FILE] [--json]"
    static let options: [Option] = [
        .value("kid", "ID", "device: how the device names the key (default: key-1)"),
        .value("key", "FILE", "open: the device's private key, as `keys device` writes it"),
        .json,
    ]
    static let details = """
        keys vapid FILE    a new VAPID key in FILE; prints the applicationServerKey that browsers
                           subscribe with
        keys apns FILE     a new key such as Apple hands out, for the simulator: Apple's own are
                           made at developer.apple.com
        keys device FILE   a new device key: the private JSON Web Key in FILE; prints public_keys
                           for the registration
        keys inspect FILE  what a file holds: type, curve, key id, public half
        keys open FILE     what is encrypted in a payload or under bugle.jwe; - is standard input

        New files have mode 0600, and no file is overwritten. A private key is never printed.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        let words = try arguments.positional("vapid, apns, device, inspect or open", "FILE")
        let path = words[1]
        let report: KeyReport
        switch words[0] {
        case "vapid": report = try makeVAPID(path)
        case "apns": report = try makeAPNs(path)
        case "device": report = try makeDevice(path, id: arguments.text("kid") ?? "key-1")
        case "inspect": report = try KeyInspection.report(on: path)
        case "open":
            Terminal.print(try open(path, with: try arguments.required("key", "FILE")))
            return .ok
        default:
            throw .usage("\(words[0]): expected vapid, apns, device, inspect or open")
        }
        report.print(asJSON: arguments.has("json"))
        return .ok
    }

    // MARK: New keys

    private static func pair() throws(Failure) -> KeyPair {
        do throws(OpenSSLError) {
            return try KeyPair.generate(for: .es256)
        } catch { throw .failed(error.description) }
    }

    private static func makeVAPID(_ path: String) throws(Failure) -> KeyReport {
        let text = try pair().privateKeyPEM
        let key: VAPIDKey
        do throws(KeyError) {
            key = try VAPIDKey(id: "", text: text, setting: path)
        } catch { throw .failed(error.description) }
        try KeyFile.write(text, to: path)
        var report = KeyReport()
        report.add("kind", "VAPID key")
        report.add("file", path)
        report.add("application_server_key", key.publicKey)
        report.note(
            "Configure it under apps.NAME.webpush.vapid_keys as {key_file: \(path)}, and give "
                + "application_server_key to pushManager.subscribe in the browser.")
        return report
    }

    private static func makeAPNs(_ path: String) throws(Failure) -> KeyReport {
        try KeyFile.write(try pair().privateKeyPEM, to: path)
        var report = KeyReport()
        report.add("kind", "APNs signing key, for the simulator")
        report.add("file", path)
        report.add("key_id", KeyInspection.keyID(in: path))
        report.note(
            "Apple does not know this key. One that Apple knows is made at developer.apple.com, "
                + "Certificates, Identifiers & Profiles, Keys.")
        return report
    }

    private static func makeDevice(_ path: String, id: String) throws(Failure) -> KeyReport {
        guard (1...DeviceKey.idBytesMax).contains(id.utf8.count) else {
            throw .usage("--kid: expected 1 to \(DeviceKey.idBytesMax) bytes")
        }
        let file: DeviceKeyFile
        do throws(OpenSSLError) {
            file = DeviceKeyFile(id: id, key: try DevicePrivateKey.generate())
        } catch { throw .failed(error.description) }
        try KeyFile.write(file.text, to: path)
        var report = KeyReport()
        report.add("kind", "device key")
        report.add("file", path)
        report.add("kid", id)
        report.publicKeys = file.publicKeys
        report.note(
            "Put public_keys into the device's record on push.devices; bugle keys open --key "
                + "\(path) reads what routes with encrypt send to it.")
        return report
    }

    // MARK: Encrypted content

    private static func open(_ path: String, with keyPath: String) throws(Failure) -> String {
        guard let file = DeviceKeyFile(try KeyFile.read(keyPath)) else {
            throw .failed(
                "\(keyPath): no private key of a device; expected a JSON Web Key of kty EC, crv "
                    + "P-256, with d")
        }
        let text = try KeyFile.read(path)
        guard let message = SealedMessage(sealedText(in: text)) else {
            throw .failed(
                "\(path): nothing encrypted is in it; expected bugle.jwe or a payload that has it")
        }
        guard let plain = message.open(with: file.key) else {
            let isOther = !file.id.isEmpty && message.keyID != file.id
            throw .failed(
                isOther
                    ? "\(path): encrypted for the key \(message.keyID.printable), and \(keyPath) is "
                        + file.id.printable
                    : "\(path): not encrypted for the key in \(keyPath), or changed on the way")
        }
        return String(decoding: plain, as: UTF8.self)
    }

    /// The encrypted text: the whole file, or in a payload as some gateway delivers it.
    private static func sealedText(in text: String) -> String {
        let parser = JSONParser()
        guard let root = try? parser.parse(text), root.isObject else {
            return text.filter { !$0.isWhitespace }
        }
        let holders = [root, root["data"], root["message"]?["data"]].compactMap { $0 }
        for holder in holders {
            if let text = holder["jwe"]?.string ?? holder["bugle"]?["jwe"]?.string { return text }
            // FCM's data is text.
            if let text = holder["bugle"]?.string, let block = try? JSONParser().parse(text),
                let sealed = block["jwe"]?.string
            {
                return sealed
            }
        }
        return ""
    }
}
