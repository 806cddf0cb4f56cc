// What the simulated gateways know about the world: teams and keys, projects and accounts, tokens.
// Tests change it while the services run.

public import Base
public import Crypto
internal import Synchronization

/// The registered facts. Safe on any thread.
public final class GatewayFacts: Sendable {
    private struct State: Sendable {
        var apns = APNsFacts()
        var fcm = FCMFacts()
        var subscriptions: [String: WebPushSubscription] = [:]
        var expo = ExpoFacts()
        var unknownTokens: UnknownTokenPolicy
        var unknownCredentials: UnknownCredentialPolicy
    }

    private let state: Mutex<State>

    init(unknownTokens: UnknownTokenPolicy, unknownCredentials: UnknownCredentialPolicy) {
        state = Mutex(
            State(unknownTokens: unknownTokens, unknownCredentials: unknownCredentials))
    }

    /// How a token that nobody registered is answered.
    public var unknownTokens: UnknownTokenPolicy {
        get { state.withLock { $0.unknownTokens } }
        set { state.withLock { $0.unknownTokens = newValue } }
    }

    /// How credentials that nobody registered are judged.
    public var unknownCredentials: UnknownCredentialPolicy {
        get { state.withLock { $0.unknownCredentials } }
        set { state.withLock { $0.unknownCredentials = newValue } }
    }
}

// APNs.
extension GatewayFacts {
    func withAPNs<Value: Sendable>(_ body: (inout sending APNsFacts) -> sending Value) -> Value {
        state.withLock { body(&$0.apns) }
    }

    /// Registers a team's signing key, for the environments it is restricted to.
    public func addAPNsKey(
        teamID: String, keyID: String, _ key: VerifyingKey,
        environments: Set<GatewayEnvironment> = [.production, .sandbox]
    ) {
        let fact = APNsKey(teamID: teamID, key: key, environments: environments)
        state.withLock { $0.apns.keys[keyID] = fact }
    }

    /// Revokes a signing key.
    public func removeAPNsKey(keyID: String) {
        state.withLock { $0.apns.keys[keyID] = nil }
    }

    /// Restricts a team to some bundle ids; until then it may use any.
    public func setBundleIDs(_ bundleIDs: Set<String>, teamID: String) {
        state.withLock { $0.apns.bundleIDs[teamID] = bundleIDs }
    }

    /// Registers a device token, in hex, for an environment and for bundle ids; none means any.
    public func setAPNsToken(
        _ token: String, environment: GatewayEnvironment, topics: Set<String> = [],
        _ tokenState: APNsTokenState = .live
    ) {
        let fact = APNsToken(environment: environment, topics: topics, state: tokenState)
        state.withLock { $0.apns.tokens[token.lowercased()] = fact }
    }

    func apnsKey(_ keyID: String) -> APNsKey? { state.withLock { $0.apns.keys[keyID] } }

    func mayUse(bundleID: String, teamID: String) -> Bool {
        state.withLock { $0.apns.bundleIDs[teamID]?.contains(bundleID) ?? true }
    }

    /// The fact about a token, or the policy for unknown ones.
    func apnsToken(_ token: String) -> (APNsToken?, UnknownTokenPolicy) {
        state.withLock { ($0.apns.tokens[token], $0.unknownTokens) }
    }
}

// FCM.
extension GatewayFacts {
    /// Registers a project, with a quota of messages per minute if there is one.
    public func addProject(_ projectID: String, messagesPerMinute: Int? = nil) {
        state.withLock {
            $0.fcm.projects[projectID] = FCMProject(messagesPerMinute: messagesPerMinute)
        }
    }

    /// Registers a service account that may send for some projects; they are registered too.
    public func addServiceAccount(
        email: String, _ key: VerifyingKey, projects: Set<String>
    ) {
        let fact = FCMServiceAccount(key: key, projects: projects)
        state.withLock { state in
            state.fcm.accounts[email] = fact
            for project in projects where state.fcm.projects[project] == nil {
                state.fcm.projects[project] = FCMProject()
            }
        }
    }

    /// Deletes a service account.
    public func removeServiceAccount(email: String) {
        state.withLock { $0.fcm.accounts[email] = nil }
    }

    /// Disables or enables a service account.
    public func setServiceAccount(email: String, isDisabled: Bool) {
        state.withLock { $0.fcm.accounts[email]?.isDisabled = isDisabled }
    }

    /// Registers a registration token of a project.
    public func setFCMToken(
        _ token: String, projectID: String, _ tokenState: FCMTokenState = .live
    ) {
        let fact = FCMToken(projectID: projectID, state: tokenState)
        state.withLock { $0.fcm.tokens[token] = fact }
    }

    func serviceAccount(_ email: String) -> FCMServiceAccount? {
        state.withLock { $0.fcm.accounts[email] }
    }

    func fcmToken(_ token: String) -> (FCMToken?, UnknownTokenPolicy) {
        state.withLock { ($0.fcm.tokens[token], $0.unknownTokens) }
    }

    /// Whether a project exists. Without any registered project every name will do, if unknown
    /// credentials are accepted.
    func hasProject(_ projectID: String) -> Bool {
        state.withLock {
            $0.fcm.projects[projectID] != nil || $0.unknownCredentials == .accepted
        }
    }

    /// Takes one message from a project's quota: a bucket that refills evenly within a minute.
    func takeQuota(_ projectID: String, at now: UnixMillis) -> Bool {
        state.withLock { state in
            guard var project = state.fcm.projects[projectID],
                let limit = project.messagesPerMinute
            else { return true }
            let refill =
                project.leftAt == .min
                ? Double(limit) : Double(now.value - project.leftAt) * Double(limit) / 60_000
            project.left = min(Double(limit), project.left + max(refill, 0))
            project.leftAt = now.value
            let hasRoom = project.left >= 1
            if hasRoom { project.left -= 1 }
            state.fcm.projects[projectID] = project
            return hasRoom
        }
    }
}

// Web push.
extension GatewayFacts {
    /// Registers a subscription by its id, the last part of its endpoint. With the browser's keys
    /// the journal names the messages that it gets; with a VAPID key every other one is refused.
    public func setSubscription(
        _ id: String, keys: SubscriberKeys? = nil, vapidKey: String? = nil,
        _ subscriptionState: SubscriptionState = .live
    ) {
        let fact = WebPushSubscription(keys: keys, vapidKey: vapidKey, state: subscriptionState)
        state.withLock { $0.subscriptions[id] = fact }
    }

    func subscription(_ id: String) -> (WebPushSubscription?, UnknownTokenPolicy) {
        state.withLock { ($0.subscriptions[id], $0.unknownTokens) }
    }
}

// Expo.
extension GatewayFacts {
    /// The access token that senders have to show; nil for none.
    public var expoAccessToken: String? {
        get { state.withLock { $0.expo.accessToken } }
        set { state.withLock { $0.expo.accessToken = newValue } }
    }

    /// Registers a token: what becomes of its messages, and of which project it is; nil for that
    /// of all tokens that nobody gave one.
    public func setExpoToken(
        _ token: String, _ fate: ExpoTokenFate = ExpoTokenFate(), project: String? = nil
    ) {
        state.withLock { state in
            state.expo.fates[token] = fate
            state.expo.projects[token] = project
        }
    }

    func expoFate(of token: String) -> ExpoTokenFate {
        state.withLock { state in
            if let fate = state.expo.fates[token] { return fate }
            return state.unknownTokens == .accepted
                ? ExpoTokenFate(token: token) : ExpoTokenFate(ticket: "DeviceNotRegistered")
        }
    }

    func expoProject(of token: String) -> String {
        state.withLock { $0.expo.projects[token] ?? ExpoFacts.project(namedBy: token) }
    }
}
