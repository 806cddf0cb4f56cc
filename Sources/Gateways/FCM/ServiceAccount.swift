internal import Base
public import Crypto
internal import JSON

/// A Google service account, read from its JSON key file.
public struct ServiceAccount: Sendable {
    /// The project that messages are sent for.
    public let projectID: String
    /// The account's name.
    public let clientEmail: String
    /// Where access tokens are fetched.
    public let tokenEndpoint: TokenEndpoint

    /// Seals tokens for the other replicas, who hold the same key.
    internal let box: SealedBox
    private let privateKeyID: String?
    private let key: SigningKey

    private static let scope = "https://www.googleapis.com/auth/firebase.messaging"

    /// Reads a key file; `setting` names it in errors. `tokenURI` overrides the file's.
    public init(json: [UInt8], setting: String, tokenURI: String? = nil) throws(KeyError) {
        let file: JSONValue
        do throws(JSONError) {
            file = try JSONParser(maximumBytes: 1 << 20).parse(json)
        } catch {
            // The other key of an app, which looks much the same to whoever sets them up.
            let isPEM = json.drop { $0 <= 0x20 }.starts(with: Array("-----BEGIN".utf8))
            throw KeyError(
                setting: setting,
                problem: isPEM
                    ? "this is PEM; a service account is JSON, as the Firebase console hands it out"
                    : "not a service account key file: \(error.description)")
        }
        func text(_ name: String) throws(KeyError) -> String {
            guard let text = file[name]?.string, !text.isEmpty else {
                throw KeyError(
                    setting: setting,
                    problem: "'\(name)' is missing; give the key file of a service account whole")
            }
            return text
        }
        guard try text("type") == "service_account" else {
            throw KeyError(
                setting: setting, problem: "'type' must be 'service_account'; this is another file")
        }
        projectID = try text("project_id")
        guard projectID.utf8.allSatisfy(Self.isProjectCharacter), projectID.utf8.count <= 64 else {
            throw KeyError(setting: setting, problem: "'project_id' is not a project's id")
        }
        clientEmail = try text("client_email")
        privateKeyID = file["private_key_id"]?.string
        let uri = if let tokenURI { tokenURI } else { try text("token_uri") }
        guard let endpoint = TokenEndpoint(uri) else {
            throw KeyError(
                setting: setting, problem: "'token_uri' is not an https address: '\(uri)'")
        }
        tokenEndpoint = endpoint
        key = try SigningKey(
            pem: try text("private_key"), for: .rs256, setting: "\(setting), 'private_key'")
        do throws(OpenSSLError) {
            box = try SealedBox(key, purpose: "oauth access token")
        } catch {
            throw KeyError(setting: setting, problem: error.description)
        }
    }

    private static func isProjectCharacter(_ byte: UInt8) -> Bool {
        (0x30...0x39).contains(byte) || (0x61...0x7A).contains(byte) || byte == UInt8(ascii: "-")
            || byte == UInt8(ascii: ":") || byte == UInt8(ascii: ".")
    }

    /// The form that asks for an access token (RFC 7523, section 2.1), signed.
    internal func tokenForm(at wall: UnixMillis) throws(OpenSSLError) -> [UInt8] {
        let bytes = ByteWriter(capacity: 512)
        var header = JSONObjectWriter(bytes)
        header.literal("alg", "RS256")
        header.literal("typ", "JWT")
        if let privateKeyID { header.string("kid", privateKeyID) }
        header.end()
        let headerText = bytes.text
        bytes.removeAll()
        var claims = JSONObjectWriter(bytes)
        claims.string("iss", clientEmail)
        claims.string("scope", Self.scope)
        claims.string("aud", tokenEndpoint.uri)
        claims.integer("iat", wall.seconds)
        claims.integer("exp", (wall + FCMLimits.assertionLife).seconds)
        claims.end()
        let assertion = try JWT.signed(header: headerText, claims: bytes.text, with: key)
        return Array(
            "grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Ajwt-bearer&assertion=".utf8)
            + Array(assertion.utf8)
    }
}

/// Where a token endpoint is.
public struct TokenEndpoint: Sendable, Equatable {
    /// The whole address.
    public let uri: String
    /// The host.
    public let host: String
    /// The port.
    public let port: UInt16
    /// The path.
    public let path: String

    /// Takes an https address apart; nil for anything else.
    public init?(_ uri: String) {
        guard uri.hasPrefix("https://"), uri.utf8.allSatisfy({ (0x21...0x7E).contains($0) }) else {
            return nil
        }
        let rest = uri.dropFirst("https://".count)
        let authority = rest.prefix { $0 != "/" && $0 != "?" && $0 != "#" }
        let path = rest.dropFirst(authority.count)
        guard path.isEmpty || path.hasPrefix("/"), !authority.contains("@") else { return nil }
        self.uri = uri
        self.path = path.isEmpty ? "/" : String(path)
        if authority.hasPrefix("["), let close = authority.firstIndex(of: "]") {
            host = String(authority[authority.index(after: authority.startIndex)..<close])
        } else {
            host = String(authority.prefix { $0 != ":" })
        }
        let bracketCount = authority.hasPrefix("[") ? 2 : 0
        let portText = authority.dropFirst(host.count + bracketCount)
        guard !host.isEmpty else { return nil }
        if portText.isEmpty {
            port = 443
        } else {
            guard portText.hasPrefix(":"), let number = UInt16(portText.dropFirst()), number > 0
            else {
                return nil
            }
            port = number
        }
    }
}
