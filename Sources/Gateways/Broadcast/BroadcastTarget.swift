// Instead of a user's devices: one address that the gateway itself fans out.

public import Base

/// A topic, a condition over topics or a channel.
public struct BroadcastTarget: Sendable, Equatable {
    /// What the gateway keeps the list of devices under. The raw value is the member of an event's
    /// `to`, and the address kind of its result.
    public enum Kind: String, Sendable, CaseIterable {
        /// A topic of FCM.
        case fcmTopic = "fcm_topic"
        /// A condition over topics of FCM.
        case fcmCondition = "fcm_condition"
        /// A broadcast channel of APNs, for Live Activities.
        case apnsChannel = "apns_channel"

        /// Who fans it out.
        public var gateway: Gateway { self == .apnsChannel ? .apns : .fcm }
    }

    /// What it is.
    public let kind: Kind
    /// The topic's name, the condition, or the channel's id in base64.
    public let name: String
    /// Where a channel lives; `none` for FCM.
    public let environment: GatewayEnvironment

    /// A target; throws the rule that the name breaks.
    public init(
        _ kind: Kind, _ name: String, environment: GatewayEnvironment = .production
    ) throws(BroadcastNameError) {
        switch kind {
        case .fcmTopic: try FCMTopicName.check(name)
        case .fcmCondition: try FCMCondition.check(name)
        case .apnsChannel: try APNsChannelID.check(name)
        }
        self.kind = kind
        self.name = name
        self.environment = kind == .apnsChannel ? environment : .none
    }
}

/// Why a name is none that the gateway knows.
public struct BroadcastNameError: Error, Sendable, Equatable, CustomStringConvertible {
    /// The rule, in words.
    public let rule: String

    /// The rule.
    public var description: String { rule }

    internal init(_ rule: String) { self.rule = rule }
}

/// Names of FCM topics: `[a-zA-Z0-9-_.~%]+`, without `/topics/` in front.
internal enum FCMTopicName {
    static func check(_ name: String) throws(BroadcastNameError) {
        if name.hasPrefix("/topics/") {
            throw BroadcastNameError(
                "an FCM topic is named without /topics/ in front (HTTP v1, Message.topic)")
        }
        guard (1...FCMLimits.topicNameBytes).contains(name.utf8.count) else {
            throw BroadcastNameError(
                "the name of an FCM topic has 1 to \(FCMLimits.topicNameBytes) bytes")
        }
        guard name.utf8.allSatisfy(isAllowed) else {
            throw BroadcastNameError("the name of an FCM topic matches [a-zA-Z0-9-_.~%]+")
        }
    }

    static func isAllowed(_ byte: UInt8) -> Bool {
        switch byte {
        case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
        case UInt8(ascii: "-"), UInt8(ascii: "_"), UInt8(ascii: "."), UInt8(ascii: "~"),
            UInt8(ascii: "%"):
            true
        default: false
        }
    }
}

/// Ids of APNs channels: base64 of no fixed length, made by APNs.
public enum APNsChannelID {
    /// Throws the rule that an id breaks.
    public static func check(_ id: String) throws(BroadcastNameError) {
        let isBase64 = id.utf8.allSatisfy { byte in
            switch byte {
            case 0x30...0x39, 0x41...0x5A, 0x61...0x7A: true
            case UInt8(ascii: "+"), UInt8(ascii: "/"), UInt8(ascii: "="): true
            default: false
            }
        }
        guard isBase64, (1...APNsLimits.channelIDBytes).contains(id.utf8.count) else {
            throw BroadcastNameError(
                "an APNs channel is named by the base64 id that its creation answered, 1 to "
                    + "\(APNsLimits.channelIDBytes) bytes")
        }
    }
}
