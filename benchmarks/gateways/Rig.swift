// The renderers as a lane has them, and the clock that they are measured with.

import Base
import Compression
import Crypto
import Gateways
import Glibc
import JSON

/// An event's own content.
private let event =
    #"{"notification":{"title":"On its way","body":"Order A-17 arrives tomorrow between 9 and 12."},"#
    + #""data":{"order":"A-17","carrier":"post","step":3}}"#

/// CPU time of this process in nanoseconds.
func cpu() -> Int64 {
    var time = timespec()
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time)
    return Int64(time.tv_sec) * 1_000_000_000 + Int64(time.tv_nsec)
}

/// Runs `body` so many times and returns the microseconds that one took.
func micros(_ count: Int, _ body: () throws -> Void) rethrows -> Double {
    for _ in 0..<count / 10 { try body() }
    let start = cpu()
    for _ in 0..<count { try body() }
    return Double(cpu() - start) / Double(count) / 1000
}

/// Two digits behind the point.
func digits(_ value: Double) -> String {
    let hundredths = Int((value * 100).rounded())
    return "\(hundredths / 100).\(hundredths % 100 < 10 ? "0" : "")\(hundredths % 100)"
}

/// Microseconds of CPU time for one push.
struct Round {
    var apns = 0.0
    var webPush = 0.0
    var encryption = 0.0
    var largest = 0.0
    var expo = 0.0
    /// Content encrypted for a device, its key read from the registration each time.
    var sealing = 0.0
    var sealingLargest = 0.0

    /// The medians of some rounds.
    static func json(_ rounds: [Round]) -> String {
        func median(_ value: (Round) -> Double) -> String {
            digits(rounds.map(value).sorted()[rounds.count / 2])
        }
        return "{\"apns_us\":\(median(\.apns)),\"webpush_us\":\(median(\.webPush)),"
            + "\"webpush_encryption_us\":\(median(\.encryption)),"
            + "\"webpush_encryption_largest_us\":\(median(\.largest)),"
            + "\"expo_us\":\(median(\.expo)),"
            + "\"device_encryption_us\":\(median(\.sealing)),"
            + "\"device_encryption_largest_us\":\(median(\.sealingLargest))}"
    }
}

/// What a lane keeps between pushes.
struct Rig {
    let now = UnixMillis(1_767_225_600_000)
    let parser = JSONParser()
    let hex = Array(String(repeating: "0123456789abcdef", count: 4).utf8)
    let expoToken = Array("ExponentPushToken[xxxxxxxxxxxxxxxxxxxxxx]".utf8)
    let apns = APNsRenderer(APNsSettings(topic: "com.example.shop"))
    let providerToken = ProviderToken(
        header: Array("bearer \(String(repeating: "x", count: 180))".utf8), generation: 1,
        mintedAt: MonotonicTime(nanos: 0))
    let webPush: WebPushRenderer
    let subscription: WebPushSubscription
    let vapid = VAPIDToken(
        header: Array("vapid t=\(String(repeating: "x", count: 240))".utf8), generation: 1,
        mintedAt: MonotonicTime(nanos: 0))
    let encryptor: MessageEncryptor
    let sealer: ContentSealer
    let deviceKeys = DeviceKeyReader()
    let publicKeys: String
    let expo: ExpoRenderer
    let gzip: GzipWriter
    let request = OutboundRequest()
    let body = ByteWriter(capacity: 8192)
    let json = ByteWriter(capacity: 64 << 10)

    init() throws {
        let browser = SubscriberKeys(
            scalar: [UInt8](repeating: 7, count: 32), auth: [UInt8](repeating: 1, count: 16))
        guard let browser, let credential = ExpoCredential(accessToken: nil),
            let gzip = GzipWriter()
        else { fatalError("no keys, no credential or no memory") }
        webPush = try WebPushRenderer(WebPushSettings())
        subscription = WebPushSubscription(
            endpoint: try WebPushEndpoint(Array("https://fcm.googleapis.com/fcm/send/abc".utf8)),
            keys: try SubscriptionKeys(p256dh: browser.p256dh, auth: browser.auth))
        encryptor = try MessageEncryptor()
        sealer = try ContentSealer()
        let device = try DevicePrivateKey.generate()
        publicKeys =
            #"[{"kid":"k1","jwk":{"kty":"EC","crv":"P-256","x":"\#(Base64URL.encode(device.x))","#
            + #""y":"\#(Base64URL.encode(device.y))"}}]"#
        expo = ExpoRenderer(credential)
        self.gzip = gzip
    }

    /// The content of the event, complete for one target.
    private func content() throws -> PushContent {
        let root = try parser.parse(event)
        let content = PushContent(
            messageID: UUIDBytes(high: 1, low: 2), eventType: "order.shipped",
            eventIdentity: UUIDBytes(high: 3, low: 4), now: now, expiresAt: now + .hours(24),
            collapseKey: "order-A-17")
        try content.take(notification: root["notification"], data: root["data"])
        return content
    }

    private func target(_ gateway: Gateway, _ token: UnsafeRawBufferPointer) -> PushTarget {
        PushTarget(
            gateway: gateway, environment: gateway == .apns ? .production : .none, token: token,
            registeredAt: now)
    }

    func round() throws -> Round {
        var round = Round()
        let said = try content()
        round.apns = hex.withUnsafeBytes { token in
            micros(200_000) {
                _ = apns.render(
                    said, to: target(.apns, token), authorization: providerToken, into: request)
            }
        }
        round.webPush = micros(20_000) {
            _ = webPush.render(said, to: subscription, authorization: vapid, into: request)
        }
        round.encryption = try encryption(of: 300)
        round.largest = try encryption(of: 3993)
        round.expo = expoToken.withUnsafeBytes { token in
            micros(2_000) { writeHundred(said, token) } / 100
        }
        round.sealing = try sealing(of: 300)
        round.sealingLargest = try sealing(of: 2600)
        return round
    }

    private func sealing(of size: Int) throws -> Double {
        let plaintext = [UInt8](repeating: 65, count: size)
        let app = Array("shop".utf8)
        let id = UUIDBytes(high: 1, low: 2).bytes
        return try micros(20_000) {
            guard case .key(let key) = deviceKeys.choose(from: publicKeys) else { return }
            body.removeAll()
            try plaintext.withUnsafeBytes { plaintext in
                try app.withUnsafeBytes { app in
                    try id.withUnsafeBytes { id in
                        try sealer.seal(
                            plaintext, for: key, producer: app, recipient: id, into: body)
                    }
                }
            }
        }
    }

    private func encryption(of size: Int) throws -> Double {
        let plaintext = [UInt8](repeating: 65, count: size)
        return try plaintext.withUnsafeBytes { plaintext in
            try micros(20_000) {
                body.removeAll()
                try encryptor.encrypt(plaintext, for: subscription.keys, into: body)
            }
        }
    }

    private func writeHundred(_ said: PushContent, _ token: UnsafeRawBufferPointer) {
        json.removeAll()
        for index in 0..<100 {
            json.append(index == 0 ? 0x5B : 0x2C)
            _ = expo.render(said, to: target(.expo, token), into: body)
            json.append(body.bytes)
        }
        json.append(0x5D)
        request.reset()
        _ = gzip.compress(json.bytes, into: request.body)
        expo.writeHead(path: ExpoRenderer.sendPath, isCompressed: true, into: request)
    }
}
