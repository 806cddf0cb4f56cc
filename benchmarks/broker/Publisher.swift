import Base
import Crypto
import Kafka

/// Writes events and registrations: user `n` has `n mod 4 + 1` devices, so 2.5 on average over
/// any multiple of four users, and events take the users in turn.
final class Publisher {
    private let producer: TopicProducer
    private let users: Int
    private let hasSandbox: Bool
    private let isRouted: Bool
    private let devices: Devices
    private var events = 0
    /// Where events of the class marketing go.
    static let marketing = "push.marketing"
    private let bytes = ByteWriter(capacity: 1024)

    init(
        _ bootstrapServers: String, users: Int, hasSandbox: Bool, isRouted: Bool, devices: Devices
    ) throws {
        self.devices = devices
        // Large batches: the mock cluster keeps a bounded number of them and looks through them
        // one by one.
        var settings = ProducerConfiguration()
        settings.linger = .milliseconds(5)
        producer = try TopicProducer(
            KafkaConfiguration(
                bootstrapServers: bootstrapServers, clientID: "publisher",
                properties: ["batch.num.messages": "10000"]), producer: settings)
        self.users = users
        self.hasSandbox = hasSandbox
        self.isRouted = isRouted
    }

    /// Publishes one record, and waits until it is there.
    func publish(_ topic: String, key: String, value: String) throws {
        try producer.send(to: topic, key: Array(key.utf8), value: Array(value.utf8))
        try flush()
    }

    /// Registers every user's devices; returns how many there are.
    func publishDevices() throws -> Int {
        var count = 0
        // Of today: what was not seen for a long time is not sent to.
        let registeredAt = SystemTime.shared.wall.value
        for user in 0..<users {
            // Fours of users, each of which has as many devices as another.
            let isSandbox = hasSandbox && user / 4 % 2 == 1
            let app = devices.app(of: user)
            for device in 0...user % 4 {
                let install = "install-\(user)-\(device)"
                let value = """
                    {"v":1,"app":"\(app)","install_id":"\(install)","kind":"alert",\
                    "user_id":"user-\(user)",\(devices.address(of: install, app, isSandbox)),\
                    "version":1,"registered_at":\(registeredAt),"app_version":"4.2.0",\
                    "locale":"de-AT","permission":"granted"}
                    """
                try producer.send(
                    to: "push.devices", key: Array("\(app)/\(install)".utf8),
                    value: Array(value.utf8))
                count += 1
            }
        }
        try flush()
        return count
    }

    /// Queues the next event.
    func publishEvent(to topic: String = "push.events") throws {
        let user = events % users
        events += 1
        bytes.removeAll()
        bytes.append(
            """
            {"v":1,"id":"order-\(events)-shipped","source":"orders","type":"order.shipped",\
            "app":"\(devices.app(of: user))","user_id":"user-\(user)","priority":"high",\
            "labels":{"team":"orders"},\
            "collapse_key":"order-\(events)",
            """)
        bytes.append(isRouted ? payload : content)
        try producer.send(
            to: topic, key: Array("user-\(user)".utf8), value: bytes.array)
    }

    /// What is sent, in the event's own words.
    private var content: String {
        """
        "notification":{"title":"Your order is on its way",\
        "body":"Parcel \(events) left our warehouse in Graz and arrives tomorrow before noon.",\
        "sound":"default"},"data":{"order_id":"A-\(events)","carrier":"Example Post",\
        "url":"https://shop.example.com/orders/\(events)","eta":"2026-01-02T12:00:00Z"}}
        """
    }

    /// The facts, of which a route makes the same.
    private var payload: String {
        """
        "payload":{"order":"A-\(events)","parcel":\(events),"town":"Graz",\
        "carrier":"Example Post","eta":"2026-01-02T12:00:00Z"}}
        """
    }

    func flush() throws { try producer.flush(timeout: .seconds(60)) }
}

/// Where the users' devices are.
struct Devices {
    let gateway: String
    /// Of web push: what endpoints begin with.
    let endpoint: String
    let apps: Int

    /// Fours of users, so that each app's users have as many devices as another's.
    func app(of user: Int) -> String { apps == 1 ? "shop" : "shop\(user / 4 % apps)" }

    /// The members of a registration that say where a device is.
    func address(of install: String, _ app: String, _ isSandbox: Bool) -> String {
        let hash = SHA256Digest(of: install).hex
        switch gateway {
        case "apns":
            let environment = isSandbox ? "sandbox" : "production"
            return #""platform":"ios","gateway":"apns","environment":"\#(environment)","#
                + #""token":"\#(hash)""#
        case "fcm":
            return #""platform":"android","gateway":"fcm","environment":"none","#
                + #""token":"f\#(hash.prefix(21)):APA91b\#(hash)\#(hash)""#
        case "webpush":
            // The keys of RFC 8291's example: decoding and encryption cost the same for any.
            return #""platform":"web","gateway":"webpush","environment":"none","#
                + #""endpoint":"\#(endpoint)\#(hash)","keys":{"p256dh":"\#(Self.p256dh)","#
                + #""auth":"BTBZMqHH6r4Tts7J_aSIgg"}"#
        case "expo":
            return #""platform":"android","gateway":"expo","environment":"none","#
                + #""token":"ExponentPushToken[project-\#(app)-\#(hash.prefix(22))]""#
        default: fail("--gateway \(gateway): apns, fcm, webpush or expo")
        }
    }

    private static let p256dh =
        "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
}
