internal import Base

/// The values of `apns-push-type`, with the suffix each demands of the topic.
enum APNsPushType: String, CaseIterable {
    case alert, background, complication, controls, fileprovider, liveactivity, location, mdm
    case pushtotalk, voip, widgets

    var topicSuffix: String {
        switch self {
        case .alert, .background, .mdm: ""
        case .complication: ".complication"
        case .controls: ".push-type.controls"
        case .fileprovider: ".pushkit.fileprovider"
        case .liveactivity: ".push-type.liveactivity"
        case .location: ".location-query"
        case .pushtotalk: ".voip-ptt"
        case .voip: ".voip"
        case .widgets: ".push-type.widgets"
        }
    }

    /// The type whose suffix a topic ends in, or nil when it is a bare bundle id.
    static func bySuffix(of topic: String) -> APNsPushType? {
        allCases.first { !$0.topicSuffix.isEmpty && topic.hasSuffix($0.topicSuffix) }
    }

    var payloadLimit: Int {
        self == .voip ? Limits.apnsVoIPPayloadBytes : Limits.apnsPayloadBytes
    }
}

/// `apns-topic`, taken apart.
struct APNsTopic {
    let bundleID: String
    let suffixType: APNsPushType?

    /// nil when the topic is malformed.
    init?(_ topic: String) {
        let isWellFormed = topic.utf8.allSatisfy { byte in
            (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte)
                || (0x61...0x7A).contains(byte) || byte == 0x2D || byte == 0x2E || byte == 0x5F
        }
        guard !topic.isEmpty, isWellFormed else { return nil }
        suffixType = APNsPushType.bySuffix(of: topic)
        bundleID = String(topic.dropLast(suffixType?.topicSuffix.utf8.count ?? 0))
        if bundleID.isEmpty { return nil }
    }

    /// What is wrong with using the topic for a push type, or nil.
    func fault(for type: APNsPushType) -> APNsReason? {
        if suffixType == type || suffixType == nil && type.topicSuffix.isEmpty { return nil }
        // A topic for one purpose with the type of another, or a bare one where a suffix is due.
        return suffixType == nil ? .topicDisallowed : .invalidPushType
    }
}
