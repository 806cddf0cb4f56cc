// `to`: an event for a topic, a condition or a channel instead of a user.

internal import Base
internal import Gateways
internal import JSON

extension EventFields {
    /// The broadcast target; nil when the event is for a user.
    func broadcast(userField: EventField) throws(Refusal) -> BroadcastTarget? {
        guard let to = try object(.to) else { return nil }
        guard !has(userField) else {
            throw Refusal(
                .invalidField, "\(userField) and to exclude each other: publish two events")
        }
        for field: EventField in [.only, .except, .unread] where has(field) {
            throw Refusal(
                .invalidField, "\(field) is about a user's devices and does not go with to")
        }
        let fields = EventFields(to)
        var found: [(EventField, BroadcastTarget.Kind)] = []
        for (field, kind): (EventField, BroadcastTarget.Kind) in [
            (.fcmTopic, .fcmTopic), (.fcmCondition, .fcmCondition), (.apnsChannel, .apnsChannel),
        ] where fields.has(field) {
            found.append((field, kind))
        }
        guard found.count == 1, let (field, kind) = found.first else {
            throw Refusal(
                .invalidField, "to needs one of fcm_topic, fcm_condition and apns_channel")
        }
        let name = try fields.text(field, upTo: FCMLimits.conditionBytes) ?? ""
        let environment = try fields.channelEnvironment(of: kind)
        do throws(BroadcastNameError) {
            return try BroadcastTarget(kind, name, environment: environment)
        } catch {
            throw Refusal(.invalidField, "to.\(field): \(error.rule)")
        }
    }

    /// Channels do not cross environments; the others have none.
    private func channelEnvironment(
        of kind: BroadcastTarget.Kind
    ) throws(Refusal) -> GatewayEnvironment {
        guard has(.environment) else { return .production }
        let text = try text(.environment, upTo: 16)
        switch text.flatMap({ GatewayEnvironment(rawValue: $0) }) {
        case .production where kind == .apnsChannel: return .production
        case .sandbox where kind == .apnsChannel: return .sandbox
        default:
            throw Refusal(
                .invalidField,
                "to.environment must be production or sandbox, and goes with apns_channel only")
        }
    }
}
