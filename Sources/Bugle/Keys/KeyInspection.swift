// Says what a file with a key is. The file's text is the only thing that is asked: no network, no
// configuration.

internal import Base
internal import Crypto
internal import Gateways
internal import JSON

internal enum KeyInspection {
    /// Reports on a file, or says why nothing can be done with it.
    static func report(on path: String) throws(Failure) -> KeyReport {
        let text = try KeyFile.read(path)
        var report = KeyReport()
        report.add("file", path)
        if text.contains("-----BEGIN") {
            try describe(pem: text, path, &report)
        } else if let root = try? JSONParser().parse(text), root.isObject {
            try describe(json: root, text, path, &report)
        } else if let key = try? VAPIDKey(id: "", text: text, setting: path) {
            report.add("kind", "VAPID key, a private scalar in base64url")
            report.add("application_server_key", key.publicKey)
        } else {
            throw .failed(
                "\(path): no key that is known here: expected PEM (an AuthKey_….p8, a VAPID key), a "
                    + "JSON Web Key, a service account, or 32 bytes in base64url")
        }
        report.warn(KeyFile.exposure(of: path))
        return report
    }

    private static func describe(
        pem text: String, _ path: String, _ report: inout KeyReport
    ) throws(Failure) {
        let facts: PrivateKeyFacts
        do throws(KeyError) {
            facts = try PrivateKeyFacts(pem: text, setting: path)
        } catch { throw .failed(error.description) }
        let id = keyID(in: path)
        report.add(
            "kind",
            facts.curve == "P-256"
                ? (id == nil ? "signing key, for APNs or VAPID" : "APNs signing key")
                : "private key")
        report.add("type", facts.type)
        report.add("curve", facts.curve)
        if facts.curve == nil { report.add("bits", String(facts.bits)) }
        report.add("form", facts.isPKCS8 ? "PKCS#8 in PEM" : "traditional PEM")
        report.add("fingerprint", facts.fingerprint)
        report.add("key_id", id)
        guard facts.curve == "P-256" else {
            report.warn(
                facts.type == "RSA"
                    ? "an RSA key signs for Google only, inside a service account's JSON"
                    : "neither APNs nor VAPID takes it: both need an EC key on P-256")
            return
        }
        let key: VAPIDKey
        do throws(KeyError) {
            key = try VAPIDKey(id: "", text: text, setting: path)
        } catch { throw .failed(error.description) }
        report.add("application_server_key", key.publicKey)
        if id == nil {
            report.note(
                "For APNs: the key id is in the name that Apple gave the file, AuthKey_<key "
                    + "id>.p8, and on the page where it was made; the file itself does not hold it."
            )
        } else if !facts.isPKCS8 {
            report.warn("Apple's files are PKCS#8; this one was converted")
        }
    }

    /// The key id in a name that Apple gives: `AuthKey_ABCDE12345.p8`.
    static func keyID(in path: String) -> String? {
        let name = path.split(separator: "/").last.map(String.init) ?? path
        guard let start = name.firstRange(of: "AuthKey_")?.upperBound else { return nil }
        let id = name[start...].prefix { $0.isASCII && ($0.isLetter || $0.isNumber) }
        return id.count == 10 ? id.uppercased() : nil
    }

    private static func describe(
        json root: JSONValue, _ text: String, _ path: String, _ report: inout KeyReport
    ) throws(Failure) {
        if let device = DeviceKeyFile(text) {
            report.add("kind", "device key with its private half")
            report.add("kid", device.id)
            report.publicKeys = device.publicKeys
            if device.id.isEmpty { report.warn("kid is missing; registrations need one") }
        } else if root["kty"] != nil {
            try describe(publicKey: text, path, &report)
        } else if root["type"]?.string == "service_account" {
            do throws(KeyError) {
                let account = try ServiceAccount(json: Array(text.utf8), setting: path)
                report.add("kind", "Google service account")
                report.add("project_id", account.projectID)
                report.add("client_email", root["client_email"]?.string)
            } catch { throw .failed(error.description) }
        } else {
            do throws(KeyError) {
                let key = try VAPIDKey(id: "", text: text, setting: path)
                report.add("kind", "VAPID key, JSON")
                report.add("application_server_key", key.publicKey)
            } catch { throw .failed(error.description) }
        }
    }

    private static func describe(
        publicKey text: String, _ path: String, _ report: inout KeyReport
    ) throws(Failure) {
        let kid = (try? JSONParser().parse(text))?["kid"]?.string ?? "key"
        let entry = ByteWriter()
        entry.append("[{\"kid\":")
        entry.append(jsonString: kid)
        entry.append(",\"jwk\":\(text)}]")
        switch DeviceKeyReader().choose(from: entry.text) {
        case .key(let key):
            report.add("kind", "public device key")
            report.add("kid", key.id)
        case .unusable(let flaw):
            throw .failed("\(path): \(flaw.replacing("public_keys[0]: ", with: ""))")
        case .absent: throw .failed("\(path): no key")
        }
    }
}
