internal import Base

/// The values of `apns-push-type`, and what each demands of a request.
internal enum APNsPushType: String, CaseIterable {
    case alert, background, complication, controls, fileprovider, liveactivity, location, mdm
    case pushtotalk, voip, widgets

    /// What the topic ends with, behind the bundle id.
    var topicSuffix: StaticString {
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

    /// The value as a header field.
    var text: StaticString {
        switch self {
        case .alert: "alert"
        case .background: "background"
        case .complication: "complication"
        case .controls: "controls"
        case .fileprovider: "fileprovider"
        case .liveactivity: "liveactivity"
        case .location: "location"
        case .mdm: "mdm"
        case .pushtotalk: "pushtotalk"
        case .voip: "voip"
        case .widgets: "widgets"
        }
    }

    /// The largest payload, in bytes.
    var payloadBytesMax: Int {
        self == .voip ? APNsLimits.payloadBytesVoIP : APNsLimits.payloadBytes
    }

    /// The `apns-priority` that an event's priority becomes.
    func priority(for priority: EventPriority) -> APNsPriority {
        switch self {
        case .background: .considerPower
        case .voip, .pushtotalk, .mdm, .controls: .immediate
        case .alert: priority == .low ? .considerPower : .immediate
        case .complication, .fileprovider, .liveactivity, .location, .widgets:
            priority == .high ? .immediate : .considerPower
        }
    }
}

/// The values of `apns-priority`.
internal enum APNsPriority: String {
    case immediate = "10"
    case considerPower = "5"
    case powerFirst = "1"

    /// The value as a header field.
    var text: StaticString {
        switch self {
        case .immediate: "10"
        case .considerPower: "5"
        case .powerFirst: "1"
        }
    }
}
