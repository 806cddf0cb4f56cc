import Base
import Config
import JSON
import Routes
import Testing

/// A configuration with these routes and two apps.
func configuration(_ routes: String, more: String = "") throws -> Configuration {
    try Configuration.parse(
        text: """
            kafka: {brokers: "localhost:9092"}
            apps:
              shop:
                apns: {team_id: ABCDE12345, key_id: FGHIJ67890, key: "${KEY}", topic: a.b}
                fcm: {service_account: "${KEY}"}
                link_schemes: [shop, https]
                image_hosts: [cdn.example.com, "*.img.example.com"]
                android_channels: {normal: general, high: urgent}
              bank:
                fcm: {service_account: "${KEY}"}
            \(more)
            routes:

            """ + routes, environment: ["KEY": "k", "NAME": "Ada"])
}

func table(_ routes: String, more: String = "") throws -> RouteTable {
    try RouteTable.compile(try configuration(routes, more: more))
}

/// The lines that faulty routes are answered with.
func faults(_ routes: String, more: String = "") throws -> [String] {
    do {
        _ = try table(routes, more: more)
        return []
    } catch let error as ConfigurationErrors {
        return error.problems.map(\.description)
    }
}

/// An event and what routes make of it.
struct Sample {
    private let parser = JSONParser()
    private let explicitParser = JSONParser()
    var event: RouteEvent
    var explicit = ExplicitContent()
    let renderer = TextRenderer()

    init(
        _ type: String = "t", payload: String = "{}", app: String = "shop", explicit: String = "{}"
    ) throws {
        event = RouteEvent(
            type: type, id: "e1", userID: "u1", app: app, source: "orders",
            time: UnixMillis(1_767_225_600_000))
        event.payload = try parser.parse(payload)
        let root = try explicitParser.parse(explicit)
        self.explicit.notification = root["notification"]
        self.explicit.data = root["data"]
        self.explicit.apns = root["apns"]
        self.explicit.fcm = root["fcm"]
    }

    func match(_ table: RouteTable, of eventClass: EventClass = .transactional) -> Route? {
        table.match(event, of: eventClass)?.route
    }

    /// Matches, checks and writes; what the reader gets.
    func render(
        _ table: RouteTable, locale: String? = nil, zone: String? = nil, mustSee: Bool = false
    ) throws -> String {
        let match = try #require(table.match(event, of: .transactional))
        try match.route.check(event, explicit, in: match.abilities, with: renderer)
        let writer = ByteWriter()
        try match.route.write(
            event, explicit, for: .init(locale: locale, timeZone: zone, mustSee: mustSee),
            in: match.abilities, with: renderer, to: writer)
        // Whatever a value holds, the document stays what the route says.
        _ = try JSONParser().parse(writer.bytes)
        return writer.text
    }

    /// Why the event is refused.
    func refusal(_ table: RouteTable) -> String? {
        do {
            _ = try render(table)
            return nil
        } catch let error as TemplateError {
            return error.description
        } catch {
            return "\(error)"
        }
    }
}

/// What a text of a route becomes: the title in the document.
func title(
    _ template: String, _ payload: String, locale: String? = nil, zone: String? = nil,
    own: String = "en"
) throws -> String {
    let quoted = template.replacing("'", with: "''")
    let table = try table(
        "  t: {title: '\(quoted)', body: b}\n", more: "content: {locale: \(own)}")
    let text = try Sample(payload: payload).render(table, locale: locale, zone: zone)
    let root = try JSONParser().parse(text)
    return root["notification"]?["title"]?.string ?? ""
}
