internal import Base
internal import JSON

/// An answer of Google's token endpoint (RFC 6749, section 5), understood.
internal struct OAuthReply {
    enum Meaning {
        /// A token and how long it lives.
        case token(String, life: TimeSpan)
        /// The credential, the clock or the request is at fault.
        case refused(Fault, Reason, String)
        /// The endpoint is at fault; nothing is known about the credential.
        case failed(String)
    }

    let meaning: Meaning

    init(_ answer: GatewayAnswer) {
        let parser = JSONParser(maximumBytes: GatewayLimits.answerBytes)
        let body = try? parser.parse(answer.body)
        switch answer.status {
        case 200:
            meaning =
                Self.token(in: body)
                ?? .failed("the token endpoint answered 200 without an access token")
        case 429, 500...:
            meaning = .failed("the token endpoint answered \(answer.status)")
        case 400...499:
            meaning = Self.refusal(answer, body)
        default:
            meaning = .failed("the token endpoint answered \(answer.status)")
        }
    }

    private static func token(in body: JSONValue?) -> Meaning? {
        guard let body, let text = body["access_token"]?.string,
            (1...FCMLimits.accessTokenBytes).contains(text.utf8.count),
            text.utf8.allSatisfy({ (0x21...0x7E).contains($0) })
        else { return nil }
        let seconds = body["expires_in"]?.int64 ?? 0
        guard seconds > 0 else { return .token(text, life: FCMLimits.tokenLifeAssumed) }
        let longest = FCMLimits.tokenLifeMax.nanos / 1_000_000_000
        return .token(text, life: .seconds(min(seconds, longest)))
    }

    private static func refusal(_ answer: GatewayAnswer, _ body: JSONValue?) -> Meaning {
        let code = body?["error"]?.string ?? ""
        let words = AnswerDetail.clean(body?["error_description"]?.string ?? "")
        let reason = known.contains(code) ? Reason(rawValue: code) ?? .other : .other
        let said = words.isEmpty ? "" : " (\(words))"
        switch reason {
        case .oauthInvalidGrant:
            return grantRefusal(words, said, answer)
        case .oauthInvalidScope, .oauthInvalidRequest:
            return .refused(.ours, reason, "Google refused the form of the token request\(said)")
        case .oauthInvalidClient, .oauthUnauthorizedClient, .oauthDisabledClient,
            .oauthDeletedClient:
            return .refused(
                .credential, reason,
                "Google refused the service account\(said): look whether it is disabled or deleted")
        default:
            return .refused(
                .config, .other,
                "the token endpoint answered \(answer.status)\(said): look at 'token_uri'")
        }
    }

    private static let known: Set<String> = [
        "invalid_grant", "invalid_scope", "invalid_request", "invalid_client",
        "unauthorized_client", "disabled_client", "deleted_client",
    ]

    /// What Google says when the assertion's times do not fit its clock. Shorter ones would be found
    /// in "expired or revoked" and "associated" too, which are about the account.
    private static let clockPhrases = [
        "short-lived token", "reasonable timeframe", "iat and exp values",
    ]

    /// One code for several causes: only the description tells them apart.
    private static func grantRefusal(
        _ words: String, _ said: String, _ answer: GatewayAnswer
    ) -> Meaning {
        if words.contains("is not set") || words.contains("audience") {
            return .refused(.ours, .oauthInvalidGrant, "Google refused the assertion\(said)")
        }
        let isAboutTime = clockPhrases.contains { words.contains($0) }
        let isSkewed = answer.clockSkew.map {
            abs($0.nanos) >= GatewayLimits.clockSkewMin.nanos
        }
        if isAboutTime || isSkewed == true {
            return .refused(
                .clock, .oauthInvalidGrant,
                "Google refused the time in the assertion\(said): set this machine's clock by NTP")
        }
        return .refused(
            .credential, .oauthInvalidGrant,
            "Google refused the key\(said): it is revoked, or its account is deleted;"
                + " make a new key")
    }
}
