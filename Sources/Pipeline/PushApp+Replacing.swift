// What a credential that was loaded anew changes of an app, and what it must not change: tokens of
// devices belong to a team, a project or a key, and would all be refused, and put aside, under
// another one. The authorities that connections trust change with it.

public import Base
internal import Crypto
internal import Gateways

extension PushApp {
    /// Whether the app reaches devices through a gateway.
    public func has(_ gateway: Gateway) -> Bool {
        switch gateway {
        case .apns: apns != nil || certificateAPNs != nil
        case .fcm: fcm != nil
        case .webpush: webPush != nil
        case .expo: expo != nil
        }
    }

    /// This app with the credential and the trusted authorities that another reading of the
    /// configuration has for a gateway; nil when those are the same, or the gateway is not there.
    public func taking(_ gateway: Gateway, from other: PushApp) -> PushApp? {
        guard has(gateway), other.has(gateway) else { return nil }
        let isTrustSame = trusts(at: gateway) == other.trusts(at: gateway)
        if isTrustSame, hasSameCredential(as: other, at: gateway) { return nil }
        var app = self
        switch gateway {
        case .apns: app.takeAPNs(from: other)
        case .fcm:
            if let new = other.fcm {
                app.fcm?.tokens = new.tokens
                app.fcm?.endpoint.authorities = new.endpoint.authorities
            }
        case .webpush:
            if let new = other.webPush {
                app.webPush?.credential = new.credential
                app.webPush?.authorities = new.authorities
            }
        case .expo:
            if let new = other.expo {
                app.expo?.credential = new.credential
                app.expo?.endpoint.authorities = new.endpoint.authorities
            }
        }
        return app
    }

    /// Topic and addresses stay; a key may follow a certificate, and the other way round.
    private mutating func takeAPNs(from other: PushApp) {
        guard let (topic, production, sandbox) = apnsPlaces,
            let authorities = other.trusts(at: .apns)
        else { return }
        apns = other.apns
        apns?.topic = topic
        apns?.production = production.trusting(authorities)
        apns?.sandbox = sandbox.trusting(authorities)
        certificateAPNs = other.certificateAPNs
        certificateAPNs?.topic = topic
        certificateAPNs?.production = production.trusting(authorities)
        certificateAPNs?.sandbox = sandbox.trusting(authorities)
    }

    private var apnsPlaces: (topic: String, production: GatewayEndpoint, sandbox: GatewayEndpoint)?
    {
        apns.map { ($0.topic, $0.production, $0.sandbox) }
            ?? certificateAPNs.map { ($0.topic, $0.production, $0.sandbox) }
    }

    /// The authorities that connections to a gateway trust; nil without the gateway.
    private func trusts(at gateway: Gateway) -> TLSAuthorities? {
        switch gateway {
        case .apns: apnsPlaces?.production.authorities
        case .fcm: fcm?.endpoint.authorities
        case .webpush: webPush?.authorities
        case .expo: expo?.endpoint.authorities
        }
    }

    /// Whether another reading has the same credential for a gateway, whatever else it has.
    public func hasSameCredential(as other: PushApp, at gateway: Gateway) -> Bool {
        switch gateway {
        case .apns:
            apns?.credential === other.apns?.credential
                && certificateAPNs?.fingerprint == other.certificateAPNs?.fingerprint
        case .fcm: fcm?.tokens === other.fcm?.tokens
        case .webpush: webPush?.credential === other.webPush?.credential
        case .expo: expo?.credential == other.expo?.credential
        }
    }

    /// Why this app's credential for a gateway may not be replaced by that of another reading while
    /// the process runs; nil when it may.
    public func hindrance(toTake gateway: Gateway, from other: PushApp) -> String? {
        switch gateway {
        case .apns:
            if let topic = apnsPlaces?.topic, let certificate = other.certificateAPNs,
                certificate.topic != topic
            {
                return "it is for the topic \(certificate.topic), and tokens of devices belong to "
                    + "\(topic); a change of topic takes a restart"
            }
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
        case .apns:
            apns.map { "key \($0.credential.keyID) of team \($0.credential.teamID)" }
                ?? certificateAPNs.map { "the certificate \($0.fingerprint)" }
        case .fcm: fcm.map { $0.tokens.credential.account.clientEmail }
        case .webpush: webPush.map { "VAPID keys \($0.credential.keyIDs.joined(separator: ", "))" }
        case .expo: nil
        }
    }
}

extension GatewayEndpoint {
    /// The same place under other authorities.
    fileprivate func trusting(_ authorities: TLSAuthorities) -> GatewayEndpoint {
        GatewayEndpoint(host: host, port: port, trusting: authorities)
    }
}
