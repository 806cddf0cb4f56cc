// Builds web push requests (RFC 8030): header fields, and a body encrypted for one subscription.

public import Base
public import Crypto
internal import JSON

/// What the web pushes of one app share.
public struct WebPushSettings: Sendable {
    /// The shortest time to live that is sent, in seconds: for services that refuse zero.
    public var ttlMin: Int64
    /// The longest time to live that is sent, in seconds.
    public var ttlMax: Int64

    /// The settings of an app; the times are the services' own unless others are given.
    public init(ttlMin: Int64 = 0, ttlMax: Int64 = WebPushLimits.storage.millis / 1000) {
        self.ttlMin = ttlMin
        self.ttlMax = ttlMax
    }
}

/// Builds the requests of one app.
///
/// Loop-confined: it keeps scratch memory between calls, never a message's key or salt.
public final class WebPushRenderer {
    private let settings: WebPushSettings
    private let encryptor: MessageEncryptor
    private let payload = ByteWriter(capacity: 1024)
    private let merged = ByteWriter(capacity: 1024)
    private lazy var parser = JSONParser(maximumBytes: 1 << 20)

    /// A renderer for one app.
    public init(_ settings: WebPushSettings) throws(OpenSSLError) {
        self.settings = settings
        encryptor = try MessageEncryptor()
    }

    /// Builds one request.
    ///
    /// Unless the result is `.request`, the request is empty afterwards.
    public func render(
        _ content: borrowing PushContent, to subscription: WebPushSubscription,
        authorization: VAPIDToken, into request: OutboundRequest
    ) -> Rendering {
        request.reset()
        if content.isOver { return .expired }
        var override: WebPushOverride?
        do throws(ContentError) {
            if let webpush = content.webpush { override = try WebPushOverride(webpush) }
        } catch {
            return .rejected(reason: .invalidContent, detail: error.description)
        }
        var notes = RenderingNotes()
        let plaintext = writePayload(content)
        guard plaintext.count <= WebPushLimits.payloadBytes else {
            return .tooLarge(bytes: plaintext.count, limit: WebPushLimits.payloadBytes)
        }
        do throws(OpenSSLError) {
            try encryptor.encrypt(plaintext, for: subscription.keys, into: request.body)
        } catch {
            request.reset()
            return .rejected(reason: .encryptionFailed, detail: error.description)
        }
        writeHead(content, subscription.endpoint, override, authorization, &notes, request)
        return .request(notes)
    }

    /// Puts the payload itself in the place of the encrypted one: for people who want to see it.
    public func showPayload(_ content: borrowing PushContent, in request: OutboundRequest) {
        request.body.removeAll()
        request.body.append(writePayload(content))
    }

    private func writeHead(
        _ content: borrowing PushContent, _ endpoint: WebPushEndpoint, _ override: WebPushOverride?,
        _ authorization: VAPIDToken, _ notes: inout RenderingNotes, _ request: OutboundRequest
    ) {
        request.add(":method", "POST")
        request.add(":scheme", "https")
        request.add(":authority", endpoint.authority)
        request.add(":path", .neverIndexed) { $0.append(endpoint.path) }
        request.add("authorization", .neverIndexed) { $0.append(authorization.header) }
        let ttl = override?.ttl ?? timeToLive(content, &notes)
        request.add("ttl", .neverIndexed) { $0.append(decimal: ttl) }
        if let urgency = override?.urgency {
            request.add("urgency", urgency)
        } else {
            request.add("urgency", Self.urgency(of: content))
        }
        let (key, identity) = (override?.topic ?? content.collapseKey, content.eventIdentity)
        request.add("topic", .neverIndexed) {
            CollapseID.writeTopic(key: key, identity: identity, to: $0)
        }
        request.add("content-encoding", "aes128gcm")
        request.add("content-type", "application/octet-stream")
        if endpoint.service == .windows {
            // Without it, Windows answers 400 to a TTL of zero.
            request.add("x-wns-cache-policy", ttl == 0 ? "no-cache" : "cache")
        }
    }

    /// Every request has a TTL (RFC 8030, section 5.2); a rounding to zero would lose a message.
    private func timeToLive(
        _ content: borrowing PushContent, _ notes: inout RenderingNotes
    ) -> Int64 {
        guard !content.storesNothing else { return settings.ttlMin }
        let longest = TimeSpan.seconds(settings.ttlMax)
        guard let expiry = content.expiry(within: longest, &notes) else { return settings.ttlMax }
        return max((expiry - content.now).millis / 1000, settings.ttlMin)
    }

    private static func urgency(of content: borrowing PushContent) -> StaticString {
        guard content.isVisible, content.priority != .low else { return "low" }
        return content.priority == .high ? "high" : "normal"
    }

    /// The payload with an override merged into it; valid until the next call.
    private func writePayload(_ content: borrowing PushContent) -> UnsafeRawBufferPointer {
        payload.removeAll()
        WebPushPayload.write(content, to: payload)
        guard let patch = content.webpush else { return payload.bytes }
        merged.removeAll()
        // What is generated always parses, unless it is far too large to be sent.
        guard let base = try? parser.parse(payload.bytes) else { return payload.bytes }
        JSONMerge.write(
            base, patchedWith: patch, except: ["headers", PayloadBlock.key], to: merged)
        return merged.bytes
    }
}
