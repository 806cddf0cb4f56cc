internal import Base
internal import Config

extension Configuration.App {
    /// The files that an app's credential at a gateway is read from.
    internal func credentialFiles(at gateway: Gateway) -> [String] {
        let sources: [SecretSource?] =
            switch gateway {
            case .apns: [apns?.key]
            case .fcm: [fcm?.serviceAccount]
            case .webpush: webPush?.keys.map(\.key) ?? []
            case .expo: [expo?.accessToken]
            }
        return sources.compactMap { source in
            if case .file(let path) = source { return path }
            return nil
        }
    }
}
