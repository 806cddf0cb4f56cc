internal import Base
internal import JSON

/// What APNs takes with a 200 and then drops, delays or shows wrongly. It answers nothing; the
/// journal counts it, so that a sender's mistakes come to light.
enum APNsAdvice {
    static func advisory(
        on payload: JSONValue, _ type: APNsPushType?, _ body: ByteWriter
    ) -> String? {
        guard let type else { return "no apns-push-type" }
        if type == .mdm { return payload["mdm"] == nil ? "mdm without its push magic" : nil }
        guard let aps = payload["aps"] else {
            return type == .fileprovider || type == .location || type == .voip
                || type == .pushtotalk || type == .complication ? nil : "payload without aps"
        }
        switch type {
        case .background:
            if aps["alert"] != nil || aps["badge"] != nil || aps["sound"] != nil {
                return "background with something to show"
            }
            return aps["content-available"]?.int64 == 1
                ? nil : "background without content-available"
        case .alert:
            let shows = aps["alert"] != nil || aps["badge"] != nil || aps["sound"] != nil
            return shows ? nil : "alert with nothing to show"
        case .liveactivity: return activityAdvisory(on: aps)
        case .controls, .widgets:
            return aps["content-changed"]?.bool == true ? nil : "\(type) without content-changed"
        default: return nil
        }
    }

    private static func activityAdvisory(on aps: JSONValue) -> String? {
        guard aps["timestamp"]?.int64 != nil else { return "liveactivity without timestamp" }
        switch aps["event"]?.string {
        case "update": return aps["content-state"] == nil ? "update without content-state" : nil
        case "end": return nil
        case "start":
            let needed: [StaticString] = [
                "content-state", "attributes-type", "attributes", "alert",
            ]
            return needed.contains { aps[$0] == nil } ? "start without what it needs" : nil
        default: return "liveactivity without event"
        }
    }
}
