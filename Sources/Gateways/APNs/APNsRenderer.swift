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
    private let settings: APNsSettings
    private let topic: Topic
    private let scratch = ByteWriter(capacity: 1024)
    private lazy var parser = JSONParser(maximumBytes: 1 << 20)

    /// A renderer for one app.
    public init(_ settings: APNsSettings) {
        self.settings = settings
        topic = Topic(settings.topic)
    }

    /// Builds one request. `authorization` is nil where a client certificate stands in.
    ///
    /// Unless the result is `.request`, the request is empty afterwards.
    public func render(
        _ content: borrowing PushContent, to target: borrowing PushTarget,
        authorization: ProviderToken?, into request: OutboundRequest
    ) -> Rendering {
        request.reset()
        if content.isOver { return .expired }
        var plan: Plan
        do throws(ContentError) {
            plan = try self.plan(content, target)
        } catch {
            return .rejected(reason: .invalidContent, detail: error.description)
        }
        guard plan.topic.isHeaderText else {
            return .rejected(
                reason: .malformedTopic, detail: "the topic must be printable ASCII without blanks")
        }
        guard writeHead(content, target, plan, authorization, request) else {
            request.reset()
            return .malformedToken(detail: Self.tokenProblem(target.token))
        }
        writeTail(content, &plan, request)
        if let refusal = writeBody(content, &plan, request) {
            request.reset()
            return refusal
        }
        return .request(plan.notes)
    }

    /// A topic with what a request wants to know of it.
    private struct Topic {
        let text: String
        let isHeaderText: Bool
        let isForCalls: Bool

        init(_ text: String) {
            self.text = text
            isHeaderText =
                (1...APNsLimits.topicBytes).contains(text.utf8.count)
                && text.utf8.allSatisfy { (0x21...0x7E).contains($0) }
            isForCalls = text.hasSuffix(APNsPushType.voip.topicSuffix.description)
        }
    }

    /// What was decided about a push before anything is written.
    private struct Plan {
        var type: APNsPushType
        var priority: APNsPriority
        var topic: Topic
        var override: APNsOverride?
        var notes = RenderingNotes()
    }

    private func plan(
        _ content: borrowing PushContent, _ target: borrowing PushTarget
    ) throws(ContentError) -> Plan {
        let override: APNsOverride? =
            if let apns = content.apns { try APNsOverride(apns) } else { nil }
        let topic = target.apnsTopic.map { Topic($0) } ?? topic
        let isVisible = content.isVisible || override?.isVisible ?? false
        let type = override?.type ?? type(of: target.kind, topic, isVisible: isVisible)
        return Plan(
            type: type, priority: override?.priority ?? type.priority(for: content.priority),
            topic: topic, override: override)
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

    /// Writes the fields up to the priority; false when the token is no token.
    private func writeHead(
        _ content: borrowing PushContent, _ target: borrowing PushTarget, _ plan: Plan,
        _ authorization: ProviderToken?, _ request: OutboundRequest
    ) -> Bool {
        request.add(":method", "POST")
        request.add(":scheme", "https")
        request.add(
            ":authority",
            target.environment == .sandbox
                ? settings.sandboxAuthority : settings.productionAuthority)
        var isToken = false
        target.token.withUnsafeBufferPointer { token in
            request.add(":path", .neverIndexed) { isToken = Self.writePath(token, to: $0) }
        }
        guard isToken else { return false }
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
        return true
    }

    /// Writes the fields that differ from push to push.
    private func writeTail(
        _ content: borrowing PushContent, _ plan: inout Plan, _ request: OutboundRequest
    ) {
        let messageID = content.messageID
        request.add("apns-id", .neverIndexed) { $0.append(uuid: messageID) }
        if let expiration = expiration(content, &plan) {
            request.add("apns-expiration", .neverIndexed) { $0.append(decimal: expiration) }
        }
        // Only what a person sees is merged by key; a call or a control replaces nothing.
        let collapses = plan.type == .alert || plan.type == .background
        if let key = plan.override?.collapseKey ?? content.collapseKey {
            request.add("apns-collapse-id", .neverIndexed) { CollapseID.write(key: key, to: $0) }
        } else if collapses {
            let identity = content.eventIdentity
            request.add("apns-collapse-id", .neverIndexed) { $0.append(uuid: identity) }
        }
    }

    private func expiration(_ content: borrowing PushContent, _ plan: inout Plan) -> Int64? {
        if let expiration = plan.override?.expiration { return expiration }
        if content.storesNothing || plan.type == .pushtotalk { return 0 }
        return content.expiry(within: APNsLimits.storage, &plan.notes)?.seconds
    }

    /// Writes the path with the token in lower case; false when it is not hex of an even length.
    private static func writePath(
        _ token: UnsafeBufferPointer<UInt8>, to writer: ByteWriter
    ) -> Bool {
        guard (2...APNsLimits.tokenDigitsMax).contains(token.count), token.count % 2 == 0 else {
            return false
        }
        writer.append("/3/device/")
        var isHex = true
        writer.appendUninitialized(token.count) { target in
            let source = UnsafeRawBufferPointer(token)
            var index = 0
            while index + 8 <= token.count {
                let digits = source.loadUnaligned(fromByteOffset: index, as: UInt64.self)
                isHex = isHex && areHex(digits)
                target.storeBytes(
                    of: digits | 0x2020_2020_2020_2020, toByteOffset: index, as: UInt64.self)
                index += 8
            }
            while index < token.count {
                isHex = isHex && Hex.value(token[index]) != nil
                target[index] = token[index] | 0x20
                index += 1
            }
            return token.count
        }
        return isHex
    }

    /// Whether eight bytes are hex digits of either case, all at once.
    ///
    /// Adding `0x80 - n` to a byte below 0x80 sets its highest bit if the byte is `n` or more. The
    /// bit of 0x20 makes capital letters small, and is set in the digits of a number anyway.
    private static func areHex(_ bytes: UInt64) -> Bool {
        func atLeast(_ bound: UInt64, _ bytes: UInt64) -> UInt64 {
            bytes &+ (0x80 &- bound) &* 0x0101_0101_0101_0101
        }
        let highest: UInt64 = 0x8080_8080_8080_8080
        guard bytes & highest == 0 else { return false }
        let lower = bytes | 0x2020_2020_2020_2020
        let isDigit = atLeast(0x30, bytes) & ~atLeast(0x3A, bytes)
        let isLetter = atLeast(0x61, lower) & ~atLeast(0x67, lower)
        return (isDigit | isLetter) & highest == highest
    }

    private static func tokenProblem(_ token: [UInt8]) -> String {
        if token.isEmpty { return "the token is empty" }
        if token.count > APNsLimits.tokenDigitsMax {
            return "the token has \(token.count) characters, too many for a device token"
        }
        return token.count % 2 == 0 || token.contains { Hex.value($0) == nil }
            ? "the token has characters that are not hex digits"
            : "the token has an odd number of hex digits"
    }

    // MARK: Body

    /// Writes the body; what it returns stands in the way of sending it.
    private func writeBody(
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
                if let problem = APNsPayloadCheck.problem(
                    with: merged, as: plan.type, plan.priority)
                {
                    return .rejected(reason: .invalidContent, detail: problem)
                }
            } catch {
                return .rejected(reason: .localPayloadTooLarge, detail: error.description)
            }
        } else {
            writeShared(content, &plan, to: request.body)
            if plan.type == .liveactivity || plan.type == .mdm && content.data == nil {
                return .rejected(
                    reason: .invalidContent,
                    detail: "an address of kind \(plan.type.rawValue) needs content of its own")
            }
        }
        let count = request.body.count
        return count <= plan.type.payloadBytesMax
            ? nil
            : .rejected(
                reason: .localPayloadTooLarge,
                detail: "the payload has \(count) bytes, \(plan.type.payloadBytesMax) are allowed")
    }

    /// Writes the payload, or copies what an earlier target of the event got and puts this one's
    /// id in. A live activity's payload holds the time, a management push's no id.
    private func writeShared(
        _ content: borrowing PushContent, _ plan: inout Plan, to writer: ByteWriter
    ) {
        guard let shared = content.sharedPayload, plan.type != .liveactivity, plan.type != .mdm
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
