internal import Base
internal import Config
internal import Crypto
internal import JSON
internal import Kafka
internal import Simulator
internal import Telemetry

/// `bugle dev`: the embedded parts, kept running.
internal enum DevCommand: Command {
    static let name = "dev"
    static let awaitsSignals = true
    static let summary = "keeps broker, gateways and dispatcher running, for developers of services"
    static let synopsis = "dev [--state DIR] [--admin-port N] [--json]"
    static let options: [Option] = [
        .value("state", "DIR", "where keys and the configuration go; default a new folder"),
        .value("admin-port", "N", "port of metrics and health; default a free one"),
        .json,
    ]
    static let details = """
        A broker, gateways and a token index inside one process, on the loopback interface, with a
        few users whose devices are registered. Events without content of their own show a default
        notification. Prints the addresses and lines to copy; --json prints them as one line of
        JSON. Everything is gone when it ends. The broker keeps 5 MiB of each partition.
        """

    private static let readyWithin = TimeSpan.seconds(30)

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        let adminPort = try arguments.integer("admin-port", in: 1...65_535) ?? 0
        let folder = try StateFolder(arguments.text("state"), purpose: "dev")
        defer { folder.remove() }
        var options = SimulatorOptions()
        options.journal = .countersOnly
        let world = try EmbeddedWorld(
            folder: folder, options: options, lanes: nil, adminPort: UInt16(adminPort))
        try register(world)
        let log = Log.standardError(level: .info)
        try world.start(log: log, notification: ("Something is new", nil))
        if try world.waitUntilReady(upTo: readyWithin) == nil {
            if arguments.has("json") {
                Terminal.print(json(world))
            } else {
                for line in lines(world) { Terminal.print(line) }
            }
            _ = ProcessSignals.waitForEnd()
        }
        return world.stop() ? .ok : .failed
    }

    // MARK: - Devices

    private static let devices = [
        device("ada", "ada-iphone", .apns, .production),
        device("ada", "ada-android", .fcm, .none),
        device("grace", "grace-android", .fcm, .none),
        device("linus", "linus-debug-build", .apns, .sandbox),
        device("linus", "linus-laptop", .webpush, .none),
        device("linus", "linus-expo-go", .expo, .none),
    ]

    private static func device(
        _ user: String, _ install: String, _ gateway: Gateway, _ environment: GatewayEnvironment
    ) -> DemoDevice {
        DemoDevice(
            user: user, install: install, gateway: gateway, environment: environment,
            digest: SHA256Digest(of: install).hex, condition: .live)
    }

    private static func register(_ world: EmbeddedWorld) throws(Failure) {
        let now = SystemTime.shared.wall
        do throws(KafkaError) {
            let producer = try TopicProducer(world.kafka)
            for device in devices {
                try producer.send(
                    to: world.configuration.kafka.topics.devices, key: device.key,
                    value: device.record(registeredAt: now, world.simulator))
            }
            try producer.flush(timeout: .seconds(20))
        } catch {
            throw .failed("the devices cannot be registered: \(error)")
        }
    }

    // MARK: - What is printed

    private static func json(_ world: EmbeddedWorld) -> String {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.string("brokers", world.cluster.bootstrapServers)
        object.string("admin", admin(world))
        object.string("apns_production", world.simulator.address(of: .apnsProduction))
        object.string("apns_sandbox", world.simulator.address(of: .apnsSandbox))
        object.string("fcm", world.simulator.address(of: .fcm))
        object.string("token_endpoint", world.simulator.tokenURI)
        object.string("webpush", world.simulator.endpoint(of: ""))
        object.string("expo", world.simulator.address(of: .expo))
        object.string("vapid_public_key", world.files.vapidPublicKey)
        object.string("ca_file", world.files.authority)
        object.string("config", "\(world.files.folder)/bugle.yaml")
        object.end()
        return bytes.text
    }

    private static func admin(_ world: EmbeddedWorld) -> String {
        "http://127.0.0.1:\(world.service?.adminPort ?? 0)"
    }

    private static func lines(_ world: EmbeddedWorld) -> [String] {
        let brokers = world.cluster.bootstrapServers
        let users = Dictionary(grouping: devices, by: \.user).sorted { $0.key < $1.key }.map {
            "\($0.key) (\($0.value.map(\.install).joined(separator: ", ")))"
        }
        let kcat = "kcat -P -b \(brokers) -X partitioner=murmur2_random"
        return [
            "Kafka          \(brokers)",
            "admin          \(admin(world))/metrics, /healthz, /readyz",
            "APNs           \(world.simulator.address(of: .apnsProduction)), sandbox "
                + world.simulator.address(of: .apnsSandbox),
            "FCM            \(world.simulator.address(of: .fcm))",
            "web push       \(world.simulator.endpoint(of: "ID"))",
            "Expo           \(world.simulator.address(of: .expo))",
            "CA             \(world.files.authority)",
            "configuration  \(world.files.folder)/bugle.yaml",
            "users          \(users.joined(separator: ", "))",
            "",
            "In another shell, follow what happens:",
            "",
            "  bugle tail --brokers \(brokers)",
            "",
            "In a third one, publish an event, and a record that is none:",
            "",
            "  echo '{\"user_id\":\"ada\",\"type\":\"order.shipped\",\"notification\":"
                + "{\"title\":\"On its way\"}}' | \(kcat) -t push.events -k ada",
            "  echo 'not json' | \(kcat) -t push.events -k ada",
            "",
            "Register another device:",
            "",
            "  echo '{\"v\":1,\"app\":\"\(GatewayFiles.app)\",\"install_id\":\"my-phone\",\"kind\":"
                + "\"alert\",\"user_id\":\"me\",\"platform\":\"ios\",\"gateway\":\"apns\","
                + "\"environment\":\"production\",\"token\":\"\(String(repeating: "c0ffee42", count: 8))"
                + "\",\"version\":1}' | \(kcat) -t push.devices -k \(GatewayFiles.app)/my-phone",
            "",
            "Ctrl-C ends it.",
        ]
    }
}
