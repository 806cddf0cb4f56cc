// The rules of the token endpoint: a signed assertion in, an access token out (RFC 7523).

internal import Base
internal import Crypto
internal import EventLoop
internal import HTTP2
internal import JSON

/// An error of the token endpoint (RFC 6749, section 5.2).
struct OAuthFault: Error {
    var status = 400
    var code: String
    var description: String

    var judgement: Judgement {
        let body = ByteWriter()
        body.append("{\"error\":")
        body.append(jsonString: code)
        body.append(",\"error_description\":")
        body.append(jsonString: description)
        body.append("}")
        return Judgement(
            response: ServerResponse(
                status: status,
                fields: [ServerField("content-type", "application/json; charset=utf-8")],
                body: body.array),
            reason: code)
    }

    static func grant(_ description: String) -> OAuthFault {
        OAuthFault(code: "invalid_grant", description: description)
    }
}

/// Judges requests for access tokens. Loop-confined.
final class OAuthJudge: Judge {
    private let facts: GatewayFacts
    private let accessTokens: AccessTokens
    /// The port of the endpoint's own address, which is an audience beside Google's.
    var port: UInt16 = 0
    private let lifetime: TimeSpan
    private let loop: EventLoop
    private let parser = JSONParser()

    private static let scopes: Set<String> = [
        "https://www.googleapis.com/auth/firebase.messaging",
        "https://www.googleapis.com/auth/cloud-platform",
    ]

    init(
        facts: GatewayFacts, accessTokens: AccessTokens, lifetime: TimeSpan, loop: EventLoop
    ) {
        self.facts = facts
        self.accessTokens = accessTokens
        self.lifetime = lifetime
        self.loop = loop
    }

    func read(_ request: ServerRequest, on connection: ServerConnection) -> RequestSubject {
        RequestSubject()
    }

    func judge(
        _ request: ServerRequest, _ subject: RequestSubject, on connection: ServerConnection
    ) -> Judgement {
        guard request.value(":path")?.spells("/token") == true else {
            return answer(.html(404), subject, at: loop.wall)
        }
        do throws(OAuthFault) {
            let form = try form(of: request)
            guard form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer" else {
                throw OAuthFault(
                    code: "unsupported_grant_type", description: "Invalid grant_type.")
            }
            let grant = try grant(for: form["assertion"] ?? "")
            let token = accessTokens.issue(
                email: grant.email, projects: grant.projects, lifetime: lifetime, at: loop.wall)
            return accept(token)
        } catch {
            return error.judgement
        }
    }

    func answer(
        _ fault: FaultAnswer, _ subject: RequestSubject, at now: UnixMillis
    ) -> Judgement {
        var judgement: Judgement
        if let body = fault.body {
            judgement = Judgement(
                response: ServerResponse(status: fault.status, text: body), reason: fault.reason)
        } else {
            judgement =
                OAuthFault(
                    status: fault.status, code: fault.reason, description: "Scripted answer."
                ).judgement
        }
        judgement.response.fields += fault.fields
        return judgement
    }

    private func accept(_ token: String) -> Judgement {
        let body =
            "{\"access_token\":\"\(token)\",\"expires_in\":\(lifetime.millis / 1000),"
            + "\"token_type\":\"Bearer\"}"
        return Judgement(
            response: ServerResponse(
                status: 200,
                fields: [ServerField("content-type", "application/json; charset=UTF-8")],
                text: body))
    }

    private func form(of request: ServerRequest) throws(OAuthFault) -> [String: String] {
        let malformed = OAuthFault(code: "invalid_request", description: "Bad Request")
        guard request.value(":method")?.spells("POST") == true,
            request.text("content-type")?.hasPrefix("application/x-www-form-urlencoded") == true
        else { throw malformed }
        var form: [String: String] = [:]
        for pair in request.body.text.split(separator: "&") {
            let parts = pair.split(separator: "=", maxSplits: 1, omittingEmptySubsequences: false)
            guard parts.count == 2, let name = PercentEncoding.decode(parts[0]),
                let value = PercentEncoding.decode(parts[1])
            else { throw malformed }
            form[name] = value
        }
        return form
    }

    private func grant(
        for assertion: String
    ) throws(OAuthFault) -> (email: String, projects: Set<String>?) {
        guard let jwt = JWT(assertion), let header = try? parser.parse(jwt.header),
            header["alg"]?.string == "RS256"
        else { throw .grant("Invalid JWT: Failed to parse the assertion.") }
        guard let claims = try? parser.parse(jwt.claims), let email = claims["iss"]?.string else {
            throw .grant("Invalid JWT: iss (issuer) is not set.")
        }
        try checkTimes(claims)
        guard isAudience(claims["aud"]?.string ?? "") else {
            throw .grant("Invalid JWT: Failed audience check.")
        }
        let scopes = (claims["scope"]?.string ?? "").split(separator: " ").map(String.init)
        guard !Self.scopes.isDisjoint(with: scopes) else {
            throw OAuthFault(
                code: "invalid_scope",
                description: "Invalid OAuth scope or ID token audience provided.")
        }
        guard let account = facts.serviceAccount(email) else {
            if facts.unknownCredentials == .accepted { return (email, nil) }
            throw .grant("Invalid grant: account not found")
        }
        if account.isDisabled {
            throw OAuthFault(
                status: 401, code: "disabled_client", description: "The OAuth client was disabled.")
        }
        guard jwt.isSigned(by: account.key) else { throw .grant("Invalid JWT Signature.") }
        return (email, account.projects)
    }

    private func isAudience(_ text: String) -> Bool {
        text == "https://oauth2.googleapis.com/token"
            || text.hasPrefix("https://") && text.hasSuffix(":\(port)/token")
    }

    private func checkTimes(_ claims: JSONValue) throws(OAuthFault) {
        guard let issued = claims["iat"]?.int64, abs(issued) < 1 << 40 else {
            throw .grant("Invalid JWT: iat (issued at) is not set.")
        }
        guard let expires = claims["exp"]?.int64, abs(expires) < 1 << 40 else {
            throw .grant("Invalid JWT: exp (expiration time) is not set.")
        }
        let now = loop.wall.seconds
        let skew = Limits.assertionSkew.millis / 1000
        let longest = Limits.assertionLifetime.millis / 1000
        guard issued <= now + skew, expires >= now - skew, expires > issued,
            expires - issued <= longest
        else {
            throw .grant(
                "Invalid JWT: Token must be a short-lived token (60 minutes) and in a reasonable "
                    + "timeframe. Check your iat and exp values in the JWT claim.")
        }
    }
}

/// Form encoding (application/x-www-form-urlencoded).
enum PercentEncoding {
    /// nil when an escape or the UTF-8 is malformed.
    static func decode(_ text: Substring) -> String? {
        var bytes: [UInt8] = []
        var rest = text.utf8[...]
        while let byte = rest.popFirst() {
            switch byte {
            case UInt8(ascii: "+"): bytes.append(0x20)
            case UInt8(ascii: "%"):
                guard let high = rest.popFirst().flatMap(Hex.value),
                    let low = rest.popFirst().flatMap(Hex.value)
                else { return nil }
                bytes.append(high << 4 | low)
            default: bytes.append(byte)
            }
        }
        return String(validating: bytes, as: UTF8.self)
    }
}
