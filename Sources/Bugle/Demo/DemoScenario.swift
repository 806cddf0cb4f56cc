// The world of the demo: some hundred users with one to four devices, some of them dead, in the
// wrong environment or malformed; events in every shape; a few records that are none. All of it
// comes from one seed.

internal import Base
internal import Crypto
internal import JSON
internal import Kafka
internal import Simulator

/// A device of the demo.
internal struct DemoDevice {
    /// What is the matter with it.
    enum Condition: CaseIterable {
        /// It takes notifications.
        case live
        /// The app was removed: the gateway says so at the first push.
        case dead
        /// A token of the sandbox, registered as one of production.
        case wrongEnvironment
        /// A token that the gateway could not have issued.
        case malformed
    }

    let user: String
    let install: String
    let gateway: Gateway
    let environment: GatewayEnvironment
    /// The token; of a subscription the last part of its endpoint.
    let token: String
    let condition: Condition
    /// The browser's keys; nil for everything that is no subscription.
    let browserKeys: SubscriberKeys?

    /// A device whose token is made of 64 hex digits of its own.
    init(
        user: String, install: String, gateway: Gateway, environment: GatewayEnvironment,
        digest: String, condition: Condition
    ) {
        self.user = user
        self.install = install
        self.gateway = gateway
        self.environment = environment
        self.condition = condition
        browserKeys =
            gateway == .webpush
            ? SubscriberKeys(
                scalar: SHA256Digest(of: "browser \(digest)").bytes,
                auth: Array(SHA256Digest(of: "auth \(digest)").bytes.prefix(16))) : nil
        token =
            switch (condition, gateway) {
            case (.malformed, _): "not-a-token-\(install)"
            case (_, .fcm): "\(digest.prefix(22)):APA91b\(digest)\(digest)"
            case (.dead, .expo): "ExponentPushToken[DeviceNotRegistered-\(digest.prefix(10))]"
            case (_, .expo): "ExponentPushToken[\(digest.prefix(22))]"
            default: digest
            }
    }

    /// Whose browser holds a subscription; all take turns.
    private var browser: String {
        let names = ["google", "mozilla", "apple", "windows"]
        return names[Int(token.utf8.reduce(0) { $0 &+ $1 }) % names.count]
    }

    private var platform: String {
        switch gateway {
        case .apns: "ios"
        case .webpush: "web"
        default: "android"
        }
    }

    /// The key of its record.
    var key: [UInt8] { Array("\(GatewayFiles.app)/\(install)".utf8) }

    /// Its record in `push.devices`.
    func record(registeredAt time: UnixMillis, _ simulator: Simulator) -> [UInt8] {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.integer("v", 1)
        object.string("app", GatewayFiles.app)
        object.string("install_id", install)
        object.string("kind", "alert")
        object.string("user_id", user)
        object.string("platform", platform)
        object.string("gateway", gateway.rawValue)
        object.string("environment", environment.rawValue)
        if let browserKeys {
            object.string("endpoint", simulator.endpoint(of: token, at: browser))
            object.name("keys")
            var keys = JSONObjectWriter(bytes)
            keys.string("p256dh", browserKeys.p256dh)
            keys.string("auth", browserKeys.auth)
            keys.end()
            object.string("vapid_key_id", "v1")
        } else {
            object.string("token", token)
        }
        object.integer("version", 1)
        object.integer("registered_at", time.value)
        object.string("app_version", "4.2.0")
        object.end()
        return bytes.array
    }
}

/// A record to publish.
internal struct DemoRecord {
    var key: [UInt8]
    var value: [UInt8]?
    var headers: [TopicProducer.Header] = []

    /// Marks what is no event, for the check that reads the topic afterwards.
    static let poisonHeader: StaticString = "demo-poison"
}

/// Users, devices and events of one run.
internal struct DemoScenario {
    /// The devices in no order.
    let devices: [DemoDevice]
    /// The users, also those without a device.
    let users: [String]
    /// Devices by user.
    let devicesByUser: [String: [DemoDevice]]
    private var random: SeededRandom

    private static let userCount = 320

    init(seed: UInt64) {
        random = SeededRandom(seed: seed)
        var devices: [DemoDevice] = []
        users = (0..<Self.userCount).map { "user-\($0)" }
        for (number, user) in users.enumerated() {
            // A few users have signed up and never opened the app.
            let count = number % 25 == 24 ? 0 : Int.random(in: 1...4, using: &random)
            for index in 0..<count {
                devices.append(
                    Self.device(user, "install-\(number)-\(index)", using: &random))
            }
        }
        self.devices = devices
        devicesByUser = Dictionary(grouping: devices, by: \.user)
    }

    /// Tells the gateways which tokens are dead or of the other environment.
    func prepare(_ simulator: Simulator, at now: UnixMillis) {
        for device in devices {
            switch (device.condition, device.gateway) {
            case (_, .expo): break
            case (.dead, .fcm):
                simulator.facts.setFCMToken(
                    device.token, projectID: GatewayFiles.project, .unregistered)
            case (let condition, .webpush):
                simulator.facts.setSubscription(
                    device.token, keys: device.browserKeys, condition == .dead ? .gone : .live)
            case (.dead, _):
                simulator.facts.setAPNsToken(
                    device.token, environment: device.environment, .unregistered(at: now))
            case (.wrongEnvironment, _):
                simulator.facts.setAPNsToken(device.token, environment: .sandbox)
            default: break
            }
        }
    }

    /// Which installs an event of a user has to reach, and which it may be tried on.
    func targets(of user: String) -> (required: Set<String>, possible: Set<String>) {
        let devices = devicesByUser[user] ?? []
        return (
            Set(devices.filter { $0.condition == .live }.map(\.install)),
            Set(devices.map(\.install))
        )
    }

    /// `count` events with `poison` records among them.
    mutating func records(events count: Int, poison: Int) -> [DemoRecord] {
        let gap = max(count / max(poison, 1), 1)
        var records: [DemoRecord] = []
        var poisoned = 0
        for number in 0..<count {
            let user = users[Int.random(in: 0..<users.count, using: &random)]
            records.append(event(number, user))
            if poisoned < poison && number % gap == gap / 2 {
                records.append(Self.poison(poisoned, user))
                poisoned += 1
            }
        }
        while poisoned < poison {
            records.append(Self.poison(poisoned, users[0]))
            poisoned += 1
        }
        return records
    }

    // MARK: - Devices

    private static func device(
        _ user: String, _ install: String, using random: inout SeededRandom
    ) -> DemoDevice {
        let draw = Int.random(in: 0..<100, using: &random)
        let gateway: Gateway =
            draw >= 95 ? .expo : draw >= 87 ? .webpush : draw >= 55 ? .fcm : .apns
        let isApple = gateway == .apns
        let condition: DemoDevice.Condition =
            switch Int.random(in: 0..<100, using: &random) {
            case 0..<4: .dead
            case 4..<6: isApple ? .wrongEnvironment : .live
            case 6..<8: isApple ? .malformed : .live
            default: .live
            }
        let isSandbox = draw >= 45 && condition != .wrongEnvironment
        return DemoDevice(
            user: user, install: install, gateway: gateway,
            environment: isApple ? (isSandbox ? .sandbox : .production) : .none,
            digest: SHA256Digest(of: "\(install) \(random.next())").hex, condition: condition)
    }

    // MARK: - Events

    private mutating func event(_ number: Int, _ user: String) -> DemoRecord {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        var headers: [TopicProducer.Header] = []
        switch Int.random(in: 0..<10, using: &random) {
        case 0:
            object.string("user_id", user)
            object.string("event_type", "order.shipped")
            object.name("payload")
            Self.text(number, to: bytes)
        case 1:
            headers.append(.init("content-type", "application/cloudevents+json"))
            object.string("specversion", "1.0")
            object.string("id", "cloud-\(number)")
            object.string("source", "/orders")
            object.string("type", "order.paid")
            object.string("userid", user)
            object.name("data")
            Self.text(number, to: bytes)
        case 2:
            object.string("id", "silent-\(number)")
            object.string("type", "feed.changed")
            object.string("user_id", user)
            object.name("data")
            var data = JSONObjectWriter(bytes)
            data.string("feed", "home")
            data.end()
        default:
            object.string("id", "event-\(number)")
            object.string("type", "chat.message")
            object.string("user_id", user)
            object.string("collapse_key", "chat-\(number % 50)")
            object.name("notification")
            Self.text(number, to: bytes)
        }
        object.end()
        return DemoRecord(key: Array(user.utf8), value: bytes.array, headers: headers)
    }

    private static func text(_ number: Int, to bytes: ByteWriter) {
        var text = JSONObjectWriter(bytes)
        text.string("title", "News for you")
        text.string("body", "Number \(number) of the demo has something to tell.")
        text.end()
    }

    private static let poisonValues: [[UInt8]?] = [
        Array("this is no JSON".utf8), Array("[1,2,3]".utf8), nil,
        Array(#"{"user_id":"user-1","notification":{"title":"no type"}}"#.utf8),
        Array(#"{"type":"chat.message","notification":{"title":"nobody"}}"#.utf8),
        Array(#"{"type":"chat.message","user_id":"user-1","ttl":"soon"}"#.utf8),
        Array(#"{"type":"a","user_id":"user-1","app":"unknown","data":{"a":"b"}}"#.utf8),
        [0x1F, 0x8B, 0x08, 0x00, 0x00],
    ]

    private static func poison(_ number: Int, _ user: String) -> DemoRecord {
        DemoRecord(
            key: Array(user.utf8), value: poisonValues[number % poisonValues.count],
            headers: [.init(DemoRecord.poisonHeader.description, "yes")])
    }
}
