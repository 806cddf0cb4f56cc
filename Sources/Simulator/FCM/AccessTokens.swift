internal import Base
internal import Synchronization

/// What an access token allows.
struct AccessGrant: Sendable {
    let email: String
    /// nil means every project.
    let projects: Set<String>?
    let expiresAt: UnixMillis
    let generation: UInt64
}

/// The access tokens that the token endpoint issued and FCM accepts. Safe on any thread.
final class AccessTokens: Sendable {
    private struct State: Sendable {
        var grants: [String: AccessGrant] = [:]
        var issued: UInt64 = 0
        var generation: UInt64 = 0
        var random: SeededRandom
    }

    private let state: Mutex<State>

    init(seed: UInt64) { state = Mutex(State(random: SeededRandom(seed: seed))) }

    func issue(
        email: String, projects: Set<String>?, lifetime: TimeSpan, at now: UnixMillis
    ) -> String {
        state.withLock { state in
            if state.grants.count >= Limits.accessTokens {
                state.grants = state.grants.filter { $0.value.expiresAt > now }
            }
            state.issued += 1
            let token =
                "ya29.\(state.issued)."
                + Base64URL.encode(
                    UUIDBytes(high: state.random.next(), low: state.random.next()).bytes)
            state.grants[token] = AccessGrant(
                email: email, projects: projects, expiresAt: now + lifetime,
                generation: state.generation)
            return token
        }
    }

    func grant(for token: String) -> AccessGrant? { state.withLock { $0.grants[token] } }

    /// Whether a grant found earlier still stands.
    func stands(_ grant: AccessGrant) -> Bool {
        state.withLock { $0.generation == grant.generation }
    }

    /// Makes every token issued so far expire at once.
    func revokeAll() {
        state.withLock { state in
            state.generation += 1
            state.grants.removeAll()
        }
    }
}
