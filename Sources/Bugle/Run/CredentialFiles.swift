internal import Base
internal import Config

extension Configuration {
    /// The files that an app's credential at a gateway is read from, and those that say whom its
    /// connections trust.
    internal func credentialFiles(of app: App, at gateway: Gateway) -> [String] {
        let (sources, files): ([SecretSource?], [String?]) =
            switch gateway {
            case .apns: ([app.apns?.key], [app.apns?.certificateFile, app.apns?.caFile])
            case .fcm: ([app.fcm?.serviceAccount], [app.fcm?.caFile])
            case .webpush: (app.webPush?.keys.map(\.key) ?? [], [app.webPush?.caFile])
            case .expo: ([app.expo?.accessToken], [app.expo?.caFile])
            }
        let secrets = sources.map { source -> String? in
            if case .file(let path) = source { return path }
            return nil
        }
        return (secrets + files + [egress.caFile]).compactMap(\.self)
    }
}
