// What a route costs: from an event's parsed JSON to the parsed words of its notification, for one
// kind of reader, beside reading the same words out of an event that brings them itself.
//
//     swift run -c release RouteBenchmark [EVENTS]

import Base
import Config
import JSON
import Routes

let routes = """
    kafka: {brokers: "localhost:9092"}
    apps:
      shop: {fcm: {service_account: "${KEY}"}}
    routes:
      "*": {title: any}
      order.*: {title: "Order {{payload.order}}", body: "{{payload.note|On its way}}",
                collapse: "order-{{payload.order}}", link: "https://x/{{payload.order}}"}
      order.local: {title: "Order {{payload.order}}", translations: {de: {title: "Bestellung"}},
                    body: "{{payload.total:number(2)}} on {{payload.at:date(EEEEdMMMM)}}"}

    """
let payload =
    #"{"order":"A-17","note":"At the door, 5 pm","total":1234.5,"at":"2026-12-03T23:30:00Z"}"#
let own =
    #"{"notification":{"title":"Order A-17","body":"At the door, 5 pm","link":"https://x/A-17"}}"#

/// The parts that a lane keeps between events.
struct Rig {
    let table: RouteTable
    let renderer = TextRenderer()
    let parser = JSONParser()
    let wordsParser = JSONParser()
    let words = ByteWriter(capacity: 1024)
    let reader = Route.Reader(locale: "de-AT", timeZone: "Europe/Vienna")

    func routed(_ type: String, _ payload: String) throws {
        var event = RouteEvent(
            type: type, id: "e", userID: "u", app: "shop", source: "orders",
            time: UnixMillis(1_767_225_600_000))
        event.payload = try parser.parse(payload)
        guard let match = table.match(event, of: .transactional) else { return }
        try match.route.check(event, ExplicitContent(), in: match.abilities, with: renderer)
        _ = try match.route.collapseKey(of: event, with: renderer)
        words.removeAll()
        try match.route.write(
            event, ExplicitContent(), for: reader, in: match.abilities, with: renderer, to: words)
        _ = try wordsParser.parse(words.bytes)
    }
}

/// Runs `body` so many times and prints the time that one took.
func measure(_ name: String, _ count: Int, _ body: () throws -> Void) rethrows {
    for _ in 0..<count / 10 { try body() }
    let start = SystemTime.shared.monotonic
    for _ in 0..<count { try body() }
    let span = SystemTime.shared.monotonic - start
    print("\(name): \(span.nanos / Int64(count)) ns an event")
}

let count = CommandLine.arguments.dropFirst().first.flatMap { Int($0) } ?? 200_000
let rig = Rig(
    table: try RouteTable.compile(
        try Configuration.parse(text: routes, environment: ["KEY": "k"])))
try measure("an event with content of its own, parsed", count) { _ = try rig.parser.parse(own) }
try measure("a route with four texts", count) { try rig.routed("order.shipped", payload) }
try measure("a route with a number, a date and a translation", count) {
    try rig.routed("order.local", payload)
}
