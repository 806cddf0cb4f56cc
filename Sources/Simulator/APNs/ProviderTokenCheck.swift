internal import Base
internal import Crypto
internal import HTTP2
internal import JSON

/// A provider token whose form, key and signature were found good.
struct ProviderToken {
    let teamID: String
    let keyID: String
    let issuedAt: UnixMillis
}

/// Why a provider token is refused, or what it says.
enum ProviderTokenVerdict {
    case good(ProviderToken)
    case refused(APNsReason)
}

/// What one connection remembers about the provider tokens it carried: the first accepted one
/// fixes team and key, new ones must keep their distance.
final class APNsConnectionState {
    var last = LastCredential()
    var verdict = ProviderTokenVerdict.refused(.missingProviderToken)
    /// Whether more than one stream is open to this connection.
    var isGateOpen = false
    /// Whether the stream limit is lowered because of a rejection.
    var isLimitLowered = false

    private var bound: (teamID: String, keyID: String)?
    private var accepted: [(digest: String, issuedAt: UnixMillis)] = []

    /// Judges a token that is good in itself against the connection's earlier ones.
    func admit(_ token: ProviderToken, digest: String) -> APNsReason? {
        if let bound {
            if bound.teamID != token.teamID { return .forbidden }
            if bound.keyID != token.keyID { return .unrelatedKeyID }
        }
        if accepted.contains(where: { $0.digest == digest }) { return nil }
        if let newest = accepted.map(\.issuedAt).max(),
            token.issuedAt - newest < Limits.providerTokenSpacing
        {
            return .tooManyProviderTokenUpdates
        }
        bound = (token.teamID, token.keyID)
        accepted.append((digest, token.issuedAt))
        if accepted.count > Limits.providerTokensPerConnection { accepted.removeFirst() }
        return nil
    }
}

/// Checks provider tokens of one APNs environment. Loop-confined.
final class ProviderTokenCheck {
    private let facts: GatewayFacts
    private let environment: GatewayEnvironment
    private let environmentReason: APNsReason
    private let parser = JSONParser()

    init(facts: GatewayFacts, environment: GatewayEnvironment, environmentReason: APNsReason) {
        self.facts = facts
        self.environment = environment
        self.environmentReason = environmentReason
    }

    /// Who has sent a request over a connection, or why nobody may.
    func sender(
        of authorization: UnsafeRawBufferPointer?, on connection: ServerConnection,
        at now: UnixMillis
    ) -> Result<APNsSender, APNsFault> {
        if let certificate = connection.clientCertificate {
            let isElsewhere = certificate.isForSandboxOnly && environment != .sandbox
            return isElsewhere
                ? .failure(APNsFault(reason: .badCertificateEnvironment))
                : .success(.certificate(certificate))
        }
        guard let state = connection.state as? APNsConnectionState else {
            return .failure(APNsFault(reason: .internalServerError))
        }
        if let reason = refusal(of: authorization, state, at: now) {
            return .failure(APNsFault(reason: reason))
        }
        guard case .good(let token) = state.verdict else {
            return .failure(APNsFault(reason: .invalidProviderToken))
        }
        return .success(.team(token.teamID))
    }

    /// The reason to refuse the request's credential, or nil.
    func refusal(
        of authorization: UnsafeRawBufferPointer?, _ state: APNsConnectionState,
        at now: UnixMillis
    ) -> APNsReason? {
        guard let authorization else { return .missingProviderToken }
        if !state.last.isSame(as: authorization) {
            state.verdict = verdict(on: authorization)
        }
        switch state.verdict {
        case .refused(let reason): return reason
        case .good(let token):
            // In whole seconds, as the claim is.
            let distance = TimeSpan.seconds(now.seconds - token.issuedAt.seconds)
            if distance > Limits.providerTokenAge || distance < .zero - Limits.providerTokenAge {
                return .expiredProviderToken
            }
            return state.admit(token, digest: state.last.digest)
        }
    }

    private func verdict(on authorization: UnsafeRawBufferPointer) -> ProviderTokenVerdict {
        guard let text = authorization.bearerToken else {
            return .refused(.missingProviderToken)
        }
        guard let jwt = JWT(text.text), let keyID = keyID(in: jwt.header),
            let (teamID, issuedAt) = claims(in: jwt.claims)
        else { return .refused(.invalidProviderToken) }
        if let known = facts.apnsKey(keyID) {
            guard known.teamID == teamID, jwt.isSigned(by: known.key) else {
                return .refused(.invalidProviderToken)
            }
            guard known.environments.contains(environment) else {
                return .refused(environmentReason)
            }
        } else if facts.unknownCredentials == .refused {
            return .refused(.invalidProviderToken)
        }
        return .good(ProviderToken(teamID: teamID, keyID: keyID, issuedAt: issuedAt))
    }

    private func keyID(in header: [UInt8]) -> String? {
        guard let header = try? parser.parse(header), header["alg"]?.string == "ES256" else {
            return nil
        }
        return header["kid"]?.string
    }

    private func claims(in claims: [UInt8]) -> (teamID: String, issuedAt: UnixMillis)? {
        guard let claims = try? parser.parse(claims), let teamID = claims["iss"]?.string,
            let seconds = claims["iat"]?.int64, abs(seconds) < 1 << 40
        else { return nil }
        return (teamID, UnixMillis(seconds * 1000))
    }
}
