// What a credential that was loaded anew changes of an app, and what it must not change: tokens of
// devices belong to a team, a project or a key, and would all be refused, and put aside, under
// another one.

public import Base
internal import Gateways

extension PushApp {
    /// Whether the app reaches devices through a gateway.
    public func has(_ gateway: Gateway) -> Bool {
        switch gateway {
        case .apns: apns != nil
        case .fcm: fcm != nil
        case .webpush: webPush != nil
        case .expo: expo != nil
        }
    }

    /// This app with the credential that another reading of the configuration has for a gateway;
    /// nil when that is the same one, or the gateway is not there.
    public func taking(_ gateway: Gateway, from other: PushApp) -> PushApp? {
        var app = self
        switch gateway {
        case .apns:
            guard let mine = apns, let new = other.apns, mine.credential !== new.credential else {
                return nil
            }
            app.apns?.credential = new.credential
        case .fcm:
            guard let mine = fcm, let new = other.fcm, mine.tokens !== new.tokens else {
                return nil
            }
            app.fcm?.tokens = new.tokens
        case .webpush:
            guard let mine = webPush, let new = other.webPush,
                mine.credential !== new.credential
            else { return nil }
            app.webPush?.credential = new.credential
        case .expo:
            guard let mine = expo, let new = other.expo, mine.credential != new.credential else {
                return nil
            }
            app.expo?.credential = new.credential
        }
        return app
    }

    /// Why this app's credential for a gateway may not be replaced by that of another reading while
    /// the process runs; nil when it may.
    public func hindrance(toTake gateway: Gateway, from other: PushApp) -> String? {
        switch gateway {
        case .apns:
            guard let mine = apns?.credential, let new = other.apns?.credential,
                mine.teamID != new.teamID
            else { return nil }
            return "it is of the team \(new.teamID), and tokens of devices are known to "
                + "\(mine.teamID); a change of team takes a restart"
        case .fcm:
            guard let mine = fcm, let new = other.fcm, mine.projectID != new.projectID else {
                return nil
            }
            return "it is of the project \(new.projectID), and tokens of devices belong to "
                + "\(mine.projectID); a change of project takes a restart"
        case .webpush:
            guard let mine = webPush?.credential, let new = other.webPush?.credential else {
                return nil
            }
            for (id, key) in zip(mine.keyIDs, mine.publicKeys) {
                guard let index = new.keyIDs.firstIndex(of: id), new.publicKeys[index] != key
                else { continue }
                return "the key \(id) is another one, and subscriptions are worth nothing without "
                    + "the key that they were made with; add the new key under a new name"
            }
            return nil
        case .expo: return nil
        }
    }

    /// Names the credential at a gateway in a log line, without any secret; nil where there is
    /// nothing to name.
    public func credentialName(at gateway: Gateway) -> String? {
        switch gateway {
        case .apns: apns.map { "key \($0.credential.keyID) of team \($0.credential.teamID)" }
        case .fcm: fcm.map { $0.tokens.credential.account.clientEmail }
        case .webpush: webPush.map { "VAPID keys \($0.credential.keyIDs.joined(separator: ", "))" }
        case .expo: nil
        }
    }
}
