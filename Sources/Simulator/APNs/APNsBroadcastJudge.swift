// The rules of `POST /4/broadcasts/apps/<bundle id>`. The order of faults is that of `/3/device`.

internal import Base
internal import HTTP2
internal import JSON

/// Judges pushes to the channels of one environment. Loop-confined.
final class APNsBroadcastJudge {
    private let environment: GatewayEnvironment
    private let facts: GatewayFacts

    init(environment: GatewayEnvironment, facts: GatewayFacts) {
        self.environment = environment
        self.facts = facts
    }

    private static let pathPrefix: StaticString = "/4/broadcasts/apps/"

    /// The bundle id that a path names; nil when it is no broadcast's.
    static func bundleID(in path: UnsafeRawBufferPointer) -> String? {
        let length = pathPrefix.utf8CodeUnitCount
        guard path.count > length,
            UnsafeRawBufferPointer(rebasing: path[..<length]).spells(pathPrefix)
        else { return nil }
        let rest = UnsafeRawBufferPointer(rebasing: path[length...])
        return rest.contains(UInt8(ascii: "/")) ? nil : rest.text
    }

    /// What is wrong with a broadcast, or nil. The credential was found good.
    func fault(
        of request: ServerRequest, _ headers: APNsHeaders, _ payload: JSONValue?,
        bundleID: String, sender: APNsSender
    ) -> APNsReason? {
        // A suffix belongs to topics, not to this path.
        if APNsPushType.bySuffix(of: bundleID) != nil { return .topicDisallowed }
        guard sender.mayUse(bundleID, bundleID: bundleID, facts: facts) else {
            return .topicMismatch
        }
        guard facts.hasBroadcasts(bundleID: bundleID) else { return .featureNotEnabled }
        guard let channelField = headers.channelID else { return .missingChannelID }
        let id = request.value(of: channelField).text
        guard Self.isChannelID(id) else { return .badChannelID }
        let channel = facts.channel(id, bundleID: bundleID, environment: environment)
        if channel == nil, facts.unknownTokens != .accepted { return .channelNotRegistered }
        guard let type = headers.pushType.map({ request.value(of: $0).text }) else {
            return .missingPushType
        }
        // Apple spells it three ways.
        guard type.lowercased() == "liveactivity" else { return .invalidPushType }
        let priority = headers.priority.map { request.value(of: $0).text } ?? "10"
        guard ["10", "5", "1"].contains(priority) else { return .badPriority }
        if let field = headers.broadcastID, UUIDBytes(request.value(of: field).text) == nil {
            return .badMessageID
        }
        if let field = headers.expiration {
            let text = request.value(of: field).text
            guard let seconds = Int64(text), seconds >= 0 else { return .badExpirationDate }
            if seconds != 0, channel?.storagePolicy == 0 { return .badExpirationDate }
        }
        if request.bodyLength == 0 { return .payloadEmpty }
        if request.bodyLength > Limits.apnsBroadcastPayloadBytes { return .payloadTooLarge }
        return payload?.isObject == true ? nil : .badRequestPayload
    }

    static func isChannelID(_ id: String) -> Bool {
        (1...Limits.apnsChannelIDBytes).contains(id.utf8.count)
            && id.utf8.allSatisfy { byte in
                (0x30...0x39).contains(byte) || (0x41...0x5A).contains(byte)
                    || (0x61...0x7A).contains(byte) || "+/=".utf8.contains(byte)
            }
    }
}
