// The section `kafka`.

internal import Base

extension Configuration.Kafka {
    /// Properties that this program sets itself, with the key to use instead if there is one.
    private static let owned: [String: String?] = [
        "bootstrap.servers": "kafka.brokers", "metadata.broker.list": "kafka.brokers",
        "group.id": "kafka.group", "transactional.id": "kafka.instance",
        "transaction.timeout.ms": nil,
        "enable.auto.commit": nil, "enable.auto.offset.store": nil, "auto.offset.reset": nil,
        "partition.assignment.strategy": nil, "enable.idempotence": nil, "acks": nil,
        "request.required.acks": nil, "isolation.level": nil, "partitioner": nil,
    ]

    /// Properties whose values are secrets.
    private static let secrets: Set<String> = [
        "sasl.password", "sasl.oauthbearer.config", "sasl.oauthbearer.client.secret",
        "ssl.key.password", "ssl.key.pem", "ssl.keystore.password",
    ]

    /// Properties whose values are files.
    private static let files: Set<String> = [
        "ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.crl.location",
        "ssl.keystore.location", "sasl.kerberos.keytab",
    ]

    internal init(_ section: ConfigurationSection, hostName: String) {
        var section = section
        brokers = section.requiredText("brokers")
        if section.has("brokers"), !Self.areBrokers(brokers) {
            section.report("brokers", "expected host:port, more of them separated by commas")
        }
        let name = "1 to 249 letters, digits, dots, underscores and hyphens"
        group = section.value("group", default: "bugle", name, Configuration.Topics.checked)
        instance = section.value(
            "instance", default: hostName, name, Configuration.Topics.checked)
        isInstanceLeased = instance == "auto"
        commit = section.choice("commit", default: Commit.transactional)
        staticMembership = section.bool("static_membership", default: false)
        topics = Configuration.Topics(section.section("topics"))
        properties = Self.readProperties(&section)
        section.finish()
    }

    private static func areBrokers(_ text: String) -> Bool {
        text.split(separator: ",", omittingEmptySubsequences: false).allSatisfy { broker in
            let bare = broker.drop { $0 == " " }
            return HostPort(String(bare), defaultPort: 9092) != nil
        }
    }

    private static func readProperties(_ section: inout ConfigurationSection) -> [Property] {
        let reader = section.reader
        let properties = section.section("properties")
        return properties.members.compactMap { entry in
            let path = properties.path(of: entry.key)
            if let instead = owned[entry.key] {
                let advice = instead.map { "; use \($0)" } ?? ""
                reader.report(entry.line, path, "set by Bugle itself" + advice)
                return nil
            }
            let value = readProperty(entry, path, reader)
            return value.map { Property(name: entry.key, value: $0) }
        }
    }

    /// A single value, or `{file: path}`.
    private static func readProperty(
        _ entry: YAMLNode.Entry, _ path: String, _ reader: ConfigurationReader
    ) -> SecretSource? {
        if case .mapping = entry.value.content {
            guard var section = ConfigurationSection(entry.value, path: path, reader: reader)
            else { return nil }
            if !section.has("file") { section.report("file", "missing") }
            let file = section.file("file")
            section.finish()
            return file.map { .file($0) }
        }
        if secrets.contains(entry.key) {
            return SecretText.read(entry.value, path, orFile: "{file: path}", reader)
        }
        guard let text = reader.text(entry.value, path) else { return nil }
        // `probe` has librdkafka look where systems keep their authorities.
        guard files.contains(entry.key), text != "probe" else { return .value(Secret(text)) }
        let file = reader.resolve(text)
        reader.expectFile(file, entry.line, path)
        return .value(Secret(file))
    }
}

extension Configuration.Topics {
    private static let expected = "1 to 249 letters, digits, dots, underscores and hyphens"

    fileprivate init(_ section: ConfigurationSection) {
        var section = section
        events = Self.readEvents(&section)
        func name(_ key: String, _ fallback: String) -> String {
            section.value(key, default: fallback, Self.expected, Self.checked)
        }
        devices = name("devices", "push.devices")
        invalidations = name("invalidations", "push.invalidations")
        users = name("users", "push.users")
        results = name("results", "push.results")
        deadLetters = name("dead_letters", "push.events-dlt")
        receipts = name("receipts", "push.receipts")
        tickets = name("tickets", "push.expo-tickets")
        acks = name("acks", "push.acks")
        control = name("control", "push.control")
        status = name("status", "push.status")
        retry = name("retry", "push.events-retry")
        parked = name("parked", "push.events-parked")
        section.finish()
        checkUses(section)
    }

    /// A topic with two meanings would feed the program its own output.
    private func checkUses(_ section: ConfigurationSection) {
        let uses =
            events.map { ("events", $0.name) } + [
                ("devices", devices), ("invalidations", invalidations), ("users", users),
                ("results", results),
                ("dead_letters", deadLetters), ("receipts", receipts), ("tickets", tickets),
                ("acks", acks), ("control", control), ("status", status), ("retry", retry),
                ("parked", parked),
            ]
        for (index, (key, name)) in uses.enumerated() where !name.isEmpty {
            if let (first, _) = uses[..<index].first(where: { $0.1 == name }) {
                section.report(key, "names the same topic as \(first); every topic has one use")
            } else if let (base, _) = derived.first(where: { $0.1 == name }) {
                section.report(
                    key, "names one of the topics made of \(base); every topic has one use")
            }
        }
    }

    /// The topics that are named after others, each with the setting that its name begins with.
    internal var derived: [(String, String)] {
        ["10s", "1m", "10m", "1h"].map { ("retry", "\(retry)-\($0)") }
            + [
                "apns-production", "apns-sandbox", "fcm-none", "webpush-none", "expo-none", "held",
            ].map { ("parked", "\(parked)-\($0)") }
    }

    /// The text, when Kafka accepts it as a name.
    internal static func checked(_ text: String) -> String? {
        let isName = text.utf8.allSatisfy { byte in
            switch byte {
            case 0x30...0x39, 0x41...0x5A, 0x61...0x7A, 0x2D, 0x2E, 0x5F: true
            default: false
            }
        }
        return isName && (1...249).contains(text.utf8.count) && text != "." && text != ".."
            ? text : nil
    }

    /// One name, or a list of names and of mappings with `name` and `class`.
    private static func readEvents(_ section: inout ConfigurationSection) -> [Events] {
        guard let node = section.node("events") else {
            return [Events(name: "push.events", eventClass: .transactional)]
        }
        let path = section.path(of: "events")
        guard case .sequence(let elements) = node.content else {
            return [readEvents(node, path, section.reader)]
        }
        if elements.isEmpty { section.report("events", "expected at least one topic") }
        return elements.map { readEvents($0, path, section.reader) }
    }

    private static func readEvents(
        _ node: YAMLNode, _ path: String, _ reader: ConfigurationReader
    ) -> Events {
        if case .mapping = node.content,
            var section = ConfigurationSection(node, path: path, reader: reader)
        {
            if !section.has("name") { section.report("name", "missing") }
            let name = section.value("name", default: "", expected, checked)
            let eventClass = section.choice("class", default: EventClass.transactional)
            section.finish()
            return Events(name: name, eventClass: eventClass)
        }
        let text = reader.text(node, path)
        if let text, checked(text) == nil { reader.report(node.line, path, "expected \(expected)") }
        return Events(name: text ?? "", eventClass: .transactional)
    }
}
