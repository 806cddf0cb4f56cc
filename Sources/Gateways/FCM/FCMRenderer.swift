// Builds FCM HTTP v1 requests. Everything is written straight into the request's own buffers;
// after warm-up a push without an override allocates nothing.

public import Base
internal import JSON

/// What FCM requests of one project share.
public struct FCMSettings: Sendable {
    /// The host, with a port if it is not 443.
    public var authority: String
    /// The project's id or number.
    public var projectID: String

    /// The settings of a project; the host is Google's unless another is given.
    public init(projectID: String, authority: String = "fcm.googleapis.com") {
        self.projectID = projectID
        self.authority = authority
    }
}

/// Builds the requests of one project.
///
/// Loop-confined: it keeps scratch memory between calls.
public final class FCMRenderer {
    private let settings: FCMSettings
    private let path: String
    private let scratch = ByteWriter(capacity: 1024)
    private let merging = ByteWriter(capacity: 1024)
    private let renaming = ByteWriter(capacity: 256)
    private lazy var parser = JSONParser(maximumBytes: 1 << 20)
    private lazy var overrideParser = JSONParser(maximumBytes: 1 << 20)
    /// What is wrong with the message that is being built.
    private var problem: String?

    /// A renderer for one project.
    public init(_ settings: FCMSettings) {
        self.settings = settings
        path = "/v1/projects/\(settings.projectID)/messages:send"
    }

    /// Builds one request.
    ///
    /// Unless the result is `.request`, the request is empty afterwards.
    public func render(
        _ content: borrowing PushContent, to target: borrowing PushTarget,
        authorization: AccessToken, into request: OutboundRequest
    ) -> Rendering {
        request.reset()
        if content.isOver { return .expired }
        guard target.broadcast != nil || Self.isToken(target.token) else {
            return .malformedToken(
                detail: target.token.isEmpty
                    ? "the token is empty"
                    : "the token is too long or has characters that no registration token has")
        }
        request.add(":method", "POST")
        request.add(":scheme", "https")
        request.add(":authority", settings.authority)
        request.add(":path", path)
        request.add("authorization", .neverIndexed) { $0.append(authorization.header) }
        request.add("content-type", "application/json")
        var notes = RenderingNotes()
        problem = nil
        let payloadBytes = writeBody(content, target, &notes, to: request.body)
        if let problem {
            request.reset()
            return .rejected(reason: .invalidContent, detail: problem)
        }
        let limit =
            target.broadcast == nil ? FCMLimits.payloadBytes : FCMLimits.broadcastPayloadBytes
        guard payloadBytes <= limit else {
            request.reset()
            return .tooLarge(bytes: payloadBytes, limit: limit)
        }
        return .request(notes)
    }

    /// Google does not define the token's form: printable ASCII that needs no escaping.
    private static func isToken(_ token: UnsafeRawBufferPointer) -> Bool {
        (1...FCMLimits.tokenBytesMax).contains(token.count)
            && token.allSatisfy { (0x21...0x7E).contains($0) && $0 != 0x22 && $0 != 0x5C }
    }

    // MARK: Body

    /// Writes the body and counts the payload as FCM does.
    private func writeBody(
        _ content: borrowing PushContent, _ target: borrowing PushTarget,
        _ notes: inout RenderingNotes, to body: ByteWriter
    ) -> Int {
        body.append("{\"message\":")
        var payloadBytes: Int
        if let patch = content.fcm {
            merging.removeAll()
            payloadBytes = writeMessage(content, target, &notes, to: merging)
            let start = body.count
            // What is generated always parses; the override alone would then be the message.
            let base = try? parser.parse(merging.bytes)
            JSONMerge.write(base, patchedWith: inSnakeCase(patch), except: Self.notMerged, to: body)
            let merged = measure(body, from: start)
            payloadBytes =
                max(payloadBytes - textBytes(content, target), merged.data) + merged.text
        } else {
            payloadBytes = writeMessage(content, target, &notes, to: body)
        }
        if content.validateOnly { body.append(",\"validate_only\":true") }
        body.append(0x7D)
        return payloadBytes
    }

    /// An override with its fields under the names that generated ones have.
    private func inSnakeCase(_ patch: JSONValue) -> JSONValue {
        guard FCMFieldNames.message.areMixed(in: patch) else { return patch }
        renaming.removeAll()
        FCMFieldNames.message.write(patch, to: renaming)
        return (try? overrideParser.parse(renaming.bytes)) ?? patch
    }

    /// The members of a message that an override cannot merge into: its address, what only FCM
    /// writes, and the data, which is merged as text.
    private static let notMerged: [StaticString] = [
        "token", "fid", "topic", "condition", "name", "data",
    ]

    /// Which of the message's addresses the target's name is: exactly one is set.
    private static func addressField(_ target: borrowing PushTarget) -> StaticString {
        switch target.broadcast {
        case .fcmTopic: "topic"
        case .fcmCondition: "condition"
        case .apnsChannel, nil: target.isInstallation ? "fid" : "token"
        }
    }

    /// How many bytes of notification text the message has after merging, and of data for one
    /// platform, which goes there in the place of everybody's; looks at its rules.
    private func measure(_ body: ByteWriter, from start: Int) -> (text: Int, data: Int) {
        let bytes = UnsafeRawBufferPointer(rebasing: body.bytes[start...])
        guard let merged = try? parser.parse(bytes) else { return (bytes.count, 0) }
        problem = FCMFieldRule.problem(with: merged)
        let places: [StaticString] = ["android", "android_v2", "androidV2", "webpush"]
        let data = places.map { Self.dataBytes(of: merged[$0]?["data"]) }.max() ?? 0
        return (Self.textBytes(of: merged["notification"]), data)
    }

    private static func dataBytes(of data: JSONValue?) -> Int {
        guard let data, data.isObject else { return 0 }
        var count = 0
        data.forEachMember { count += $0.count + ($1.stringBytes?.count ?? 0) }
        return count
    }

    /// How many bytes of notification text the content puts into the message.
    private func textBytes(
        _ content: borrowing PushContent, _ target: borrowing PushTarget
    ) -> Int {
        hasNotification(content, target) ? content.notification?.fcmTextBytes ?? 0 : 0
    }

    /// Whether the message has a notification of its own, for all platforms. On Android one without
    /// a text is an empty line; on Apple's devices, whose texts stand in their own part too, an
    /// image may be all that it brings.
    private func hasNotification(
        _ content: borrowing PushContent, _ target: borrowing PushTarget
    ) -> Bool {
        guard content.notification?.fcmTextBytes != nil, !isShownByApp(content, target) else {
            return false
        }
        return !target.isAndroidOrUnknown || content.isVisibleOnAndroid
    }

    /// Whether the app shows the notification: the message is then data alone.
    private func isShownByApp(
        _ content: borrowing PushContent, _ target: borrowing PushTarget
    ) -> Bool {
        content.isShownByAndroidApp && content.isVisibleOnAndroid && target.isAndroidOrUnknown
    }

    private static func textBytes(of notification: JSONValue?) -> Int {
        var count = 0
        notification?.forEachMember { _, value in count += value.stringBytes?.count ?? 0 }
        return count
    }

    private func writeMessage(
        _ content: borrowing PushContent, _ target: borrowing PushTarget,
        _ notes: inout RenderingNotes, to writer: ByteWriter
    ) -> Int {
        let isShownByApp = isShownByApp(content, target)
        var message = JSONObjectWriter(writer)
        message.string(Self.addressField(target), target.token)
        if hasNotification(content, target) {
            message.name("notification")
            writeNotification(content, to: writer)
        }
        message.name("data")
        var data = FCMData(to: writer, scratch: scratch)
        let override = content.fcm?["data"]
        if let object = content.data { data.write(object, overriddenBy: override) }
        if let override { data.write(override, overriddenBy: nil) }
        data.writeBlock(content, showing: isShownByApp)
        data.end()
        notes.formUnion(data.notes)
        let expiry = content.expiry(within: FCMLimits.storage, &notes)
        let lifeSeconds =
            content.storesNothing ? 0 : expiry.map { ($0 - content.now).millis / 1000 }
        // An override for the newer Android fields stands for all of the older ones.
        let hasNewer =
            content.fcm.map { $0["android_v2"] != nil || $0["androidV2"] != nil } ?? false
        if target.isAndroidOrUnknown, !hasNewer {
            message.name("android")
            writeAndroid(content, lifeSeconds, isShownByApp: isShownByApp, to: writer)
            let isVisible = content.isVisibleOnAndroid
            if isUrgent(content, isVisible), isShownByApp || !isVisible {
                notes.insert(.wakesUnseen)
            }
        }
        if target.isAppleOrUnknown {
            message.name("apns")
            writeAPNs(content, expiry, to: writer)
        }
        if target.isWeb {
            message.name("webpush")
            writeWebPush(content, lifeSeconds, to: writer)
        }
        message.end()
        return data.payloadBytes + textBytes(content, target)
    }

    private func writeNotification(_ content: borrowing PushContent, to writer: ByteWriter) {
        var object = JSONObjectWriter(writer)
        for entry in content.notification?.entries ?? [] {
            if case .notification(let name) = entry.fcm { object.value(name, entry.value) }
        }
        object.end()
    }

    /// HIGH wakes a device, and a sender whose HIGH messages show nothing loses it: so only what
    /// is shown has it, and on Android calls, which ring. What is shown depends on the system.
    private func isUrgent(_ content: borrowing PushContent, _ isVisible: Bool) -> Bool {
        content.kind == .call || isVisible && content.priority != .low
    }

    private func writeAndroid(
        _ content: borrowing PushContent, _ lifeSeconds: Int64?, isShownByApp: Bool,
        to writer: ByteWriter
    ) {
        var android = JSONObjectWriter(writer)
        if let key = content.fcmCollapseKey { android.string("collapse_key", key) }
        let isVisible = content.isVisibleOnAndroid
        android.literal("priority", isUrgent(content, isVisible) ? "HIGH" : "NORMAL")
        if let lifeSeconds {
            android.name("ttl")
            writer.append(0x22)
            writer.append(decimal: lifeSeconds)
            writer.append("s\"")
        }
        // Without anything to see this would turn a data message into a notification.
        if isVisible, !isShownByApp {
            android.name("notification")
            var notification = JSONObjectWriter(writer)
            notification.name("tag")
            writeCollapseID(content, to: writer)
            if let importance = content.importance {
                notification.literal("notification_priority", importance.androidPriority)
            }
            for entry in content.notification?.entries ?? [] {
                if case .android(let name) = entry.fcm, !entry.value.isObject {
                    notification.value(name, entry.value)
                }
            }
            notification.end()
        }
        android.end()
    }

    private func writeAPNs(
        _ content: borrowing PushContent, _ expiry: UnixMillis?, to writer: ByteWriter
    ) {
        var apns = JSONObjectWriter(writer)
        apns.name("headers")
        var headers = JSONObjectWriter(writer)
        // What shows nothing is a background push, for which APNs takes 5 alone: a call, too.
        let isUrgent = content.isVisible && isUrgent(content, true)
        headers.literal("apns-priority", isUrgent ? "10" : "5")
        if content.storesNothing || expiry != nil {
            headers.name("apns-expiration")
            writer.append(0x22)
            writer.append(decimal: content.storesNothing ? 0 : expiry?.seconds ?? 0)
            writer.append(0x22)
        }
        if content.isVisible {
            headers.name("apns-collapse-id")
            writeCollapseID(content, to: writer)
        }
        headers.end()
        apns.name("payload")
        writer.append("{\"aps\":")
        APNsPayload.writeAPS(content, as: content.isVisible ? .alert : .background, to: writer)
        writer.append(0x7D)
        apns.end()
    }

    private func writeWebPush(
        _ content: borrowing PushContent, _ lifeSeconds: Int64?, to writer: ByteWriter
    ) {
        writer.append("{\"headers\":")
        var headers = JSONObjectWriter(writer)
        if let lifeSeconds {
            headers.name("TTL")
            writer.append(0x22)
            writer.append(decimal: lifeSeconds)
            writer.append(0x22)
        }
        let isShown = content.notification?.hasText ?? false
        let urgency: StaticString =
            !isShown || content.priority == .low
            ? "low" : content.priority == .high ? "high" : "normal"
        headers.literal("Urgency", urgency)
        headers.name("Topic")
        scratch.removeAll()
        CollapseID.writeTopic(
            key: content.collapseKey, identity: content.eventIdentity, to: scratch)
        writer.append(jsonString: scratch.bytes)
        headers.end()
        // Its other members come from the message's notification.
        if isShown {
            writer.append(",\"notification\":")
            var notification = JSONObjectWriter(writer)
            notification.name("tag")
            writeCollapseID(content, to: writer)
            notification.end()
        }
        if let link = content.notification?.link, link.isSecureAddress {
            writer.append(",\"fcm_options\":")
            var options = JSONObjectWriter(writer)
            options.value("link", link)
            options.end()
        }
        writer.append(0x7D)
    }

    /// Writes the id that a push collapses under, quoted.
    private func writeCollapseID(_ content: borrowing PushContent, to writer: ByteWriter) {
        scratch.removeAll()
        CollapseID.write(of: content, to: scratch)
        writer.append(jsonString: scratch.bytes)
    }
}

extension JSONValue {
    /// Whether it is an https address, the only kind that FCM opens in a browser.
    fileprivate var isSecureAddress: Bool { stringBytes?.starts(with: "https://") ?? false }
}
