// Builds APNs requests. Everything is written straight into the request's own buffers; after
// warm-up a push without an override allocates nothing.

public import Base
internal import JSON

/// What APNs requests of one app share.
public struct APNsSettings: Sendable {
    /// The host of production addresses, with a port if it is not 443.
    public var productionAuthority: String
    /// The host of sandbox addresses, with a port if it is not 443.
    public var sandboxAuthority: String
    /// The app's bundle id.
    public var topic: String

    /// The settings of an app; the hosts are Apple's unless others are given.
    public init(
        topic: String, productionAuthority: String = "api.push.apple.com",
        sandboxAuthority: String = "api.sandbox.push.apple.com"
    ) {
        self.topic = topic
        self.productionAuthority = productionAuthority
        self.sandboxAuthority = sandboxAuthority
    }
}

/// Builds the requests of one app.
///
/// Loop-confined: it keeps scratch memory between calls.
public final class APNsRenderer {
    let settings: APNsSettings
    let topic: Topic
    /// The last topic that a registration named.
    @exclusivity(unchecked) private var namedTopic: Topic
    private let scratch = ByteWriter(capacity: 1024)
    @exclusivity(unchecked) private var heads: [Head] = []
    private lazy var parser = JSONParser(maximumBytes: 1 << 20)

    /// A renderer for one app.
    public init(_ settings: APNsSettings) {
        self.settings = settings
        topic = Topic(settings.topic)
        namedTopic = topic
    }

    /// Builds one request. `authorization` is nil where a client certificate stands in.
    ///
    /// Unless the result is `.request`, the request is empty afterwards.
    public func render(
        _ content: borrowing PushContent, to target: borrowing PushTarget,
        authorization: ProviderToken?, into request: OutboundRequest
    ) -> Rendering {
        if content.isOver {
            request.reset()
            return .expired
        }
        if target.broadcast != nil {
            return renderBroadcast(content, to: target, authorization, into: request)
        }
        if let shared = content.shared, shared.serves(self, target, authorization) {
            return repeating(shared, content, target, request)
        }
        request.reset()
        var plan: Plan
        do throws(ContentError) {
            plan = try self.plan(content, target)
            plan.usesCertificate = authorization == nil
        } catch {
            return .rejected(reason: .invalidContent, detail: error.description)
        }
        guard plan.topic.isHeaderText else {
            return .rejected(
                reason: .malformedTopic, detail: "the topic must be printable ASCII without blanks")
        }
        guard plan.topic.fits(plan.type) else {
            return .rejected(reason: .invalidContent, detail: Self.wrongTopic)
        }
        request.copy(head(target.environment, plan, authorization))
        let idFieldOffset = request.fieldBytes.count
        writeTail(content, &plan, request)
        let pathOffset = request.fieldBytes.count
        guard APNsDevicePath.set(of: request, to: target.token) else {
            request.reset()
            return .malformedToken(detail: APNsDevicePath.problem(with: target.token))
        }
        if let refusal = writeBody(content, &plan, request) {
            request.reset()
            return refusal
        }
        if let shared = content.shared, shared.type == plan.type, content.apns == nil,
            !plan.notes.contains(.shortenedExpiry)
        {
            let purpose = SharedRequest.Purpose(
                renderer: ObjectIdentifier(self), environment: target.environment,
                kind: target.kind, topic: target.apnsTopic, authorization: authorization?.header)
            shared.keep(
                request, for: purpose, idFieldOffset: idFieldOffset, pathOffset: pathOffset)
        }
        return .request(plan.notes)
    }

    /// Builds the request that an earlier target of the event got, with another token and id.
    private func repeating(
        _ shared: SharedRequest, _ content: borrowing PushContent,
        _ target: borrowing PushTarget, _ request: OutboundRequest
    ) -> Rendering {
        request.copy(shared.request)
        guard APNsDevicePath.set(of: request, to: target.token) else {
            request.reset()
            return .malformedToken(detail: APNsDevicePath.problem(with: target.token))
        }
        request.fieldBytes.overwrite(at: shared.idFieldOffset, uuid: content.messageID)
        request.body.overwrite(at: shared.idOffset, uuid: content.messageID)
        return .request(shared.notes)
    }

    /// A topic with what a request wants to know of it.
    struct Topic {
        let text: String
        let isHeaderText: Bool
        /// The only type that it can be for, by its ending; nil for a bundle id.
        private let type: APNsPushType?
        var isForCalls: Bool { type == .voip }

        init(_ text: String) {
            self.text = text
            isHeaderText =
                (1...APNsLimits.topicBytes).contains(text.utf8.count)
                && text.utf8.allSatisfy { (0x21...0x7E).contains($0) }
            type = Self.endings.first { text.hasSuffix($0.ending) }?.type
        }

        /// Whether pushes of a type can have it.
        func fits(_ other: APNsPushType) -> Bool {
            type.map { $0.topicSuffix.description == other.topicSuffix.description } ?? true
        }

        private static let endings = APNsPushType.allCases
            .map { (type: $0, ending: $0.topicSuffix.description) }.filter { !$0.ending.isEmpty }
    }

    /// What was decided about a push before anything is written.
    struct Plan {
        var type: APNsPushType
        var priority: APNsPriority
        var topic: Topic
        var override: APNsOverride?
        var notes = RenderingNotes()
        var expiration: Int64?
        var isBroadcast = false
        var usesCertificate = false
    }

    private func plan(
        _ content: borrowing PushContent, _ target: borrowing PushTarget
    ) throws(ContentError) -> Plan {
        let override: APNsOverride? =
            if let apns = content.apns { try APNsOverride(apns) } else { nil }
        let topic = target.apnsTopic.map(named) ?? topic
        let isVisible = content.isVisible || override?.isVisible ?? false
        let type = override?.type ?? type(of: target.kind, topic, isVisible: isVisible)
        return Plan(
            type: type, priority: override?.priority ?? type.priority(for: content.priority),
            topic: topic, override: override)
    }

    /// What registrations name is mostly the same again.
    private func named(_ text: String) -> Topic {
        if namedTopic.text != text { namedTopic = Topic(text) }
        return namedTopic
    }

    private func type(of kind: AddressKind, _ topic: Topic, isVisible: Bool) -> APNsPushType {
        switch kind {
        case .alert: topic.isForCalls ? .voip : isVisible ? .alert : .background
        case .voip: .voip
        case .complication: .complication
        case .controls: .controls
        case .fileprovider: .fileprovider
        case .liveactivity: .liveactivity
        case .location: .location
        case .mdm: .mdm
        case .pushtotalk: .pushtotalk
        case .widgets: .widgets
        }
    }

    // MARK: Header fields

    /// What requests begin with whose environment, topic, type, priority and credential are the
    /// same.
    private struct Head {
        let environment: GatewayEnvironment
        let type: APNsPushType
        let priority: APNsPriority
        let topic: String
        /// Held so that its address names it.
        let authorization: [UInt8]?
        let request: OutboundRequest
    }

    /// The fields up to the priority, the path among them empty: from the last few heads, or new.
    private func head(
        _ environment: GatewayEnvironment, _ plan: borrowing Plan, _ authorization: ProviderToken?
    ) -> OutboundRequest {
        for head in heads
        where head.environment == environment && head.type == plan.type
            && head.priority == plan.priority
            && head.authorization.isIdentical(to: authorization?.header)
            && head.topic == plan.topic.text
        {
            return head.request
        }
        let head = Head(
            environment: environment, type: plan.type, priority: plan.priority,
            topic: plan.topic.text, authorization: authorization?.header,
            request: OutboundRequest())
        writeHead(environment, plan, authorization, head.request)
        if heads.count == Self.headsMax { heads.removeFirst() }
        heads.append(head)
        return head.request
    }

    /// Heads that are kept, the newest ones.
    private static let headsMax = 8

    private func writeHead(
        _ environment: GatewayEnvironment, _ plan: borrowing Plan,
        _ authorization: ProviderToken?, _ request: OutboundRequest
    ) {
        request.add(":method", "POST")
        request.add(":scheme", "https")
        request.add(
            ":authority",
            environment == .sandbox ? settings.sandboxAuthority : settings.productionAuthority)
        request.add(":path", "" as StaticString, .neverIndexed)
        if let authorization {
            request.add("authorization", .neverIndexed) { $0.append(authorization.header) }
        }
        request.add("apns-topic") { writer in
            writer.append(plan.topic.text)
            let suffix = plan.type.topicSuffix
            if suffix.utf8CodeUnitCount > 0, !plan.topic.text.hasSuffix(suffix.description) {
                writer.append(suffix)
            }
        }
        request.add("apns-push-type", plan.type.text)
        request.add("apns-priority", plan.priority.text)
    }

    /// Writes the fields that differ from push to push.
    private func writeTail(
        _ content: borrowing PushContent, _ plan: inout Plan, _ request: OutboundRequest
    ) {
        var offset = request.fieldBytes.count
        request.fieldBytes.append(uuid: content.messageID)
        request.add("apns-id", from: offset, .neverIndexed)
        plan.expiration = expiration(content, &plan)
        if let expiration = plan.expiration {
            offset = request.fieldBytes.count
            request.fieldBytes.append(decimal: expiration)
            request.add("apns-expiration", from: offset, .neverIndexed)
        }
        offset = request.fieldBytes.count
        // Only what a person sees is merged by key; a call or a control replaces nothing.
        let collapses = plan.type == .alert || plan.type == .background
        if let key = plan.override?.collapseKey ?? content.collapseKey {
            CollapseID.write(key: key, to: request.fieldBytes)
        } else if collapses {
            request.fieldBytes.append(uuid: content.eventIdentity)
        } else {
            return
        }
        request.add("apns-collapse-id", from: offset, .neverIndexed)
    }

    private func expiration(_ content: borrowing PushContent, _ plan: inout Plan) -> Int64? {
        if let expiration = plan.override?.expiration { return expiration }
        if content.storesNothing || plan.type == .pushtotalk { return 0 }
        return content.expiry(within: APNsLimits.storage, &plan.notes)?.seconds
    }

    // MARK: Body

    /// Writes the body; what it returns stands in the way of sending it.
    func writeBody(
        _ content: borrowing PushContent, _ plan: inout Plan, _ request: OutboundRequest
    ) -> Rendering? {
        if let patch = content.apns {
            scratch.removeAll()
            writePayload(content, &plan, to: scratch)
            do throws(JSONError) {
                JSONMerge.write(
                    try parser.parse(scratch.bytes), patchedWith: patch,
                    except: ["headers", PayloadBlock.key], to: request.body)
                let merged = try parser.parse(request.body.bytes)
                let push = APNsPush(
                    type: plan.type, priority: plan.priority, expiration: plan.expiration,
                    topic: plan.topic.text, isBroadcast: plan.isBroadcast,
                    usesCertificate: plan.usesCertificate, payload: merged)
                if let problem = APNsRule.problem(with: push) {
                    return .rejected(reason: .invalidContent, detail: problem)
                }
            } catch {
                return .rejected(reason: .localPayloadTooLarge, detail: error.description)
            }
        } else {
            writeShared(content, &plan, to: request.body)
            if let problem = Self.problem(with: content, plan) {
                return .rejected(reason: .invalidContent, detail: problem)
            }
        }
        let count = request.body.count
        let limit =
            plan.isBroadcast ? APNsLimits.payloadBytesBroadcast : plan.type.payloadBytesMax
        return count <= limit ? nil : .tooLarge(bytes: count, limit: limit)
    }

    /// What a payload that no override had a hand in breaks: few types ask for more than is written
    /// for all of them.
    private static func problem(with content: borrowing PushContent, _ plan: Plan) -> String? {
        switch plan.type {
        case .location where plan.usesCertificate: APNsRule.text(of: "location-token")
        case .liveactivity: "an address of kind liveactivity needs content of its own"
        case .mdm where content.data?["mdm"]?.string == nil: APNsRule.text(of: "mdm-magic")
        case .mdm where content.data?["aps"] != nil: APNsRule.text(of: "mdm-without-aps")
        case .fileprovider where content.data?["container-identifier"]?.string == nil:
            APNsRule.text(of: "fileprovider-container")
        default: nil
        }
    }

    private static let wrongTopic = APNsRule.text(of: "topic-suffix")

    /// Writes the payload, or copies what an earlier target of the event got and puts this one's
    /// id in. A live activity's payload holds the time, a management push's no id.
    private func writeShared(
        _ content: borrowing PushContent, _ plan: inout Plan, to writer: ByteWriter
    ) {
        guard let shared = content.shared, plan.type != .liveactivity, plan.type != .mdm
        else {
            writePayload(content, &plan, to: writer)
            return
        }
        if shared.type == plan.type {
            writer.append(shared.bytes.bytes)
            writer.overwrite(at: shared.idOffset, uuid: content.messageID)
            plan.notes.formUnion(shared.notes)
        } else {
            var notes = RenderingNotes()
            let idOffset = APNsPayload.write(content, as: plan.type, to: writer, &notes)
            shared.keep(writer.bytes, as: plan.type, idOffset: idOffset, notes)
            plan.notes.formUnion(notes)
        }
    }

    private func writePayload(
        _ content: borrowing PushContent, _ plan: inout Plan, to writer: ByteWriter
    ) {
        if plan.type == .mdm {
            APNsPayload.writeManagement(content, to: writer)
        } else {
            _ = APNsPayload.write(content, as: plan.type, to: writer, &plan.notes)
        }
    }
}
