internal import Base
internal import Crypto
internal import JSON

/// What a connection to a push service remembers: the VAPID token it carried last.
final class WebPushConnectionState {
    var last = LastCredential()
    var verdict = VAPIDVerdict.refused(.credentialMissing)
}

/// What a VAPID token says, or why it is refused.
enum VAPIDVerdict {
    case good(VAPIDClaims)
    case refused(WebPushFault)
}

/// A VAPID token whose form and signature were found good.
struct VAPIDClaims {
    /// The key that signed it, base64url.
    let key: String
    let audience: String
    /// Whether the subject names a host that others can reach.
    let hasPublicSubject: Bool
    let expires: UnixMillis
}

/// Checks VAPID tokens (RFC 8292, and what all services ask beyond it: a subject). Loop-confined.
final class VAPIDCheck {
    private let parser = JSONParser()
    private static let lifeMax = TimeSpan.hours(24)

    /// The token of a request that fits its service and the time.
    func claims(
        of authorization: UnsafeRawBufferPointer?, origin: String, _ state: WebPushConnectionState,
        at now: UnixMillis
    ) throws(WebPushFault) -> VAPIDClaims {
        guard let authorization else { throw .credentialMissing }
        if !state.last.isSame(as: authorization) { state.verdict = verdict(on: authorization.text) }
        switch state.verdict {
        case .refused(let fault): throw fault
        case .good(let claims):
            guard claims.audience == origin, claims.expires > now,
                claims.expires - now <= Self.lifeMax
            else { throw .credentialInvalid }
            return claims
        }
    }

    private func verdict(on text: String) -> VAPIDVerdict {
        guard text.lowercased().hasPrefix("vapid ") else { return .refused(.credentialMissing) }
        var parameters: [Substring: Substring] = [:]
        for part in text.dropFirst(6).split(separator: ",") {
            let bare = part.drop { $0 == " " }
            guard let equals = bare.firstIndex(of: "=") else { continue }
            parameters[bare[..<equals]] = bare[bare.index(after: equals)...]
        }
        guard let token = parameters["t"], let text = parameters["k"] else {
            return .refused(.credentialMissing)
        }
        guard let jwt = JWT(String(token)), !text.contains("="),
            let point = Base64URL.decode(text.utf8), let key = VerifyingKey(p256Point: point),
            jwt.isSigned(by: key), isES256(jwt.header),
            let claims = claims(jwt.claims, key: String(text))
        else { return .refused(.credentialInvalid) }
        return .good(claims)
    }

    private func isES256(_ header: [UInt8]) -> Bool {
        (try? parser.parse(header))?["alg"]?.string == "ES256"
    }

    private func claims(_ json: [UInt8], key: String) -> VAPIDClaims? {
        guard let claims = try? parser.parse(json), let audience = claims["aud"]?.string,
            let expires = claims["exp"]?.int64, (0..<1 << 40).contains(expires),
            let subject = claims["sub"]?.string,
            subject.hasPrefix("mailto:") || subject.hasPrefix("https://")
        else { return nil }
        return VAPIDClaims(
            key: key, audience: audience, hasPublicSubject: Self.isPublic(subject),
            expires: UnixMillis(expires * 1000))
    }

    /// `mailto:` with an address or an https URL, at a name with a dot that is none of those which
    /// are reserved for private use (RFC 6761, RFC 6762).
    private static func isPublic(_ subject: String) -> Bool {
        let rest =
            subject.hasPrefix("mailto:")
            ? subject.split(separator: "@", omittingEmptySubsequences: false).last ?? ""
            : subject.dropFirst("https://".count)
        let host = rest.prefix { $0 != "/" && $0 != ":" && $0 != "?" }.lowercased()
        let isAddress = !subject.hasPrefix("mailto:") || subject.contains("@")
        return isAddress && host.contains(".") && !host.hasPrefix(".") && !host.hasSuffix(".")
            && ![".local", ".localhost", ".invalid", ".test"].contains { host.hasSuffix($0) }
    }
}
