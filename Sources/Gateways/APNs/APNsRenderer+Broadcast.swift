// Requests to broadcast channels: `POST /4/broadcasts/apps/<bundle id>`, for Live Activities only.

internal import Base

extension APNsRenderer {
    /// Builds the request to a channel, whose id is the target's token.
    ///
    /// `apns-expiration` is 0 unless the event itself says how long it is worth something: a channel
    /// that stores nothing refuses any other value.
    func renderBroadcast(
        _ content: borrowing PushContent, to target: borrowing PushTarget,
        _ authorization: ProviderToken?, into request: OutboundRequest
    ) -> Rendering {
        request.reset()
        let override: APNsOverride
        do throws(ContentError) {
            guard let apns = content.apns else {
                throw ContentError(
                    field: "apns", problem: "must hold the aps of a Live Activity for a channel")
            }
            override = try APNsOverride(apns)
        } catch {
            return .rejected(reason: .invalidContent, detail: error.description)
        }
        guard override.collapseKey == nil else {
            return .rejected(
                reason: .invalidContent,
                detail: "rule broadcast-collapse: pushes to a channel have no apns-collapse-id")
        }
        var plan = Plan(
            type: override.type ?? .liveactivity,
            priority: override.priority
                ?? APNsPushType.liveactivity.priority(for: content.priority),
            topic: topic, override: override)
        plan.isBroadcast = true
        plan.usesCertificate = authorization == nil
        plan.expiration =
            override.expiration
            ?? (content.hasOwnExpiry && !content.storesNothing
                ? content.expiry(within: APNsLimits.channelStorage, &plan.notes)?.seconds ?? 0 : 0)
        guard plan.topic.isHeaderText else {
            return .rejected(
                reason: .malformedTopic, detail: "the topic must be printable ASCII without blanks")
        }
        writeFields(content, target, plan, authorization, request)
        if let refusal = writeBody(content, &plan, request) {
            request.reset()
            return refusal
        }
        return .request(plan.notes)
    }

    private func writeFields(
        _ content: borrowing PushContent, _ target: borrowing PushTarget, _ plan: Plan,
        _ authorization: ProviderToken?, _ request: OutboundRequest
    ) {
        request.add(":method", "POST")
        request.add(":scheme", "https")
        request.add(
            ":authority",
            target.environment == .sandbox
                ? settings.sandboxAuthority : settings.productionAuthority)
        request.add(":path", "/4/broadcasts/apps/\(plan.topic.text)", .neverIndexed)
        if let authorization {
            request.add("authorization", .neverIndexed) { $0.append(authorization.header) }
        }
        request.add("apns-channel-id", .neverIndexed) { $0.append(target.token) }
        request.add("apns-push-type", plan.type.text)
        request.add("apns-priority", plan.priority.text)
        let offset = request.fieldBytes.count
        request.fieldBytes.append(decimal: plan.expiration ?? 0)
        request.add("apns-expiration", from: offset, .neverIndexed)
        let idOffset = request.fieldBytes.count
        request.fieldBytes.append(uuid: content.messageID)
        request.add("apns-request-id", from: idOffset, .neverIndexed)
    }
}
