// Broadcast channels.

public import Base
internal import Crypto

extension GatewayFacts {
    /// Makes a channel of an app; nil when the app has as many as it may have.
    public func addChannel(
        bundleID: String, environment: GatewayEnvironment, storagePolicy: Int = 1
    ) -> String? {
        withAPNs { apns in
            let count = apns.channels.values.count {
                $0.bundleID == bundleID && $0.environment == environment
            }
            guard count < Limits.apnsChannels else { return nil }
            apns.channelsMade += 1
            let digest = SHA256Digest(of: "\(bundleID) \(apns.channelsMade)").bytes
            let id = Base64URL.encode(Array(digest.prefix(15)))
                .replacing("-", with: "+").replacing("_", with: "/")
            apns.channels[id] = APNsChannel(
                bundleID: bundleID, environment: environment, storagePolicy: storagePolicy)
            return id
        }
    }

    /// Deletes a channel; false when there is none.
    public func removeChannel(
        _ id: String, bundleID: String, environment: GatewayEnvironment
    ) -> Bool {
        withAPNs { apns in
            guard let channel = apns.channels[id], channel.bundleID == bundleID,
                channel.environment == environment
            else { return false }
            apns.channels[id] = nil
            return true
        }
    }

    /// The ids of an app's channels, in order.
    public func channels(bundleID: String, environment: GatewayEnvironment) -> [String] {
        withAPNs { apns in
            apns.channels.filter {
                $0.value.bundleID == bundleID && $0.value.environment == environment
            }.keys.sorted()
        }
    }

    /// Switches an app's broadcast capability off or on; switching it off deletes its channels.
    public func setBroadcasts(_ isEnabled: Bool, bundleID: String) {
        withAPNs { apns in
            if isEnabled {
                apns.withoutBroadcasts.remove(bundleID)
            } else {
                apns.withoutBroadcasts.insert(bundleID)
                apns.channels = apns.channels.filter { $0.value.bundleID != bundleID }
            }
        }
    }

    func hasBroadcasts(bundleID: String) -> Bool {
        withAPNs { !$0.withoutBroadcasts.contains(bundleID) }
    }

    /// A channel of an app in an environment.
    func channel(
        _ id: String, bundleID: String, environment: GatewayEnvironment
    ) -> APNsChannel? {
        withAPNs { apns in
            apns.channels[id].flatMap {
                $0.bundleID == bundleID && $0.environment == environment ? $0 : nil
            }
        }
    }
}
