// What users, devices and operators write: records of people, acknowledgements, operators' words,
// keys of devices, events that come back, tickets, and the configuration.

import Base
import Crypto
import Foundation
import JSON
import Routes
import Testing
import TokenIndex

@testable import Config
@testable import Gateways
@testable import Pipeline

@Suite(.serialized) struct `Fuzzing of other records` {
    private static let examples = URL(filePath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent().appending(path: "topics/examples")

    /// The published examples of a topic.
    private func corpus(_ folder: String) throws -> [String] {
        try FileManager.default.contentsOfDirectory(
            at: Self.examples.appending(path: folder), includingPropertiesForKeys: nil
        ).filter { !$0.hasDirectoryPath }.map {
            String(decoding: try Data(contentsOf: $0), as: UTF8.self)
        }
    }

    private func text(_ bytes: [UInt8]) -> String {
        String(decoding: bytes.prefix(400), as: UTF8.self)
    }

    @Test func `people`() throws {
        let mutator = Mutator(
            try corpus("push.users"),
            words: [
                "\"quiet_hours\":", "\"from\":\"22:00\"", "\"to\":", "\"25:61\"", "\"unread\":",
                "\"opt_outs\":[", "\"time_zone\":", "\"user_id\":", "\"app\":\"shop\"",
            ])
        let keys = ["shop/ada", "shop/", "/ada", "", "shop", "shop/a/b", "\u{0}/\u{0}"]
        let parser = JSONParser()
        FuzzRun.feed("users") { random in
            let value = mutator.next(&random)
            let key = Array((keys.randomElement(using: &random) ?? "").utf8)
            let change = key.withUnsafeBytes { key in
                value.withUnsafeBytes { value in
                    try? UserChange.decode(key: key, value: value, parser: parser)
                }
            }
            guard let change, let record = change.record else { return nil }
            if !change.key.utf8.elementsEqual(key) { return "another key: \(change.key)" }
            if !isWholeJSON(value), value.first != 0 { return "a person: \(self.text(value))" }
            if let hours = record.quietHours,
                !(0..<1440).contains(hours.from) || !(0..<1440).contains(hours.to)
            {
                return "quiet hours \(hours)"
            }
            return (record.unread ?? 0) < 0 ? "unread \(record.unread ?? 0)" : nil
        }
    }

    @Test func `acknowledgements`() throws {
        let mutator = Mutator(
            try corpus("push.acks"), words: ["\"message_id\":", "\"type\":", "\"displayed\""])
        let parser = JSONParser()
        FuzzRun.feed("acks") { random in
            let value = mutator.next(&random)
            let ack = value.withUnsafeBytes { AckSample.read($0, parser) }
            return ack == nil || isWholeJSON(value) ? nil : "an ack: \(self.text(value))"
        }
    }

    @Test func `words of operators`() throws {
        let mutator = Mutator(
            try corpus("push.control"),
            words: [
                "\"action\":", "\"pause\"", "\"resume\"", "\"skip\"", "\"lever\":", "\"gateway\"",
                "\"value\":", "\"before\":", "\"until\":", "\"at\":",
            ])
        let parser = JSONParser()
        let keys = ["pause/gateway/apns", "skip/all", "", "pause/type/order.shipped", "x"]
        FuzzRun.feed("control") { random in
            var book = ControlBook()
            let now = UnixMillis(1_735_689_600_000)
            for _ in 0..<3 {
                let value = mutator.next(&random)
                let record = value.withUnsafeBytes { ControlRecord($0, parser: parser) }
                if record != nil, !isWholeJSON(value) { return "a word: \(self.text(value))" }
                let key = Array(
                    (record?.key ?? keys.randomElement(using: &random) ?? "").utf8)
                let isGone = Int.random(in: 0..<8, using: &random) == 0
                key.withUnsafeBytes { key in
                    value.withUnsafeBytes { value in
                        book.apply(key: key, value: isGone ? nil : value, at: now, parser: parser)
                    }
                }
            }
            let levers = book.levers(at: now)
            if levers.loosenedAt > now { return "loosened in times to come" }
            return book.pauses(at: now).count + book.skips(at: now).count > book.records.count
                ? "more words than records" : nil
        }
    }

    @Test func `keys of devices`() throws {
        let device = try DevicePrivateKey.generate()
        let (x, y) = (Base64URL.encode(device.x), Base64URL.encode(device.y))
        let good = #"{"kid":"k1","jwk":{"kty":"EC","crv":"P-256","x":"\#(x)","y":"\#(y)"}}"#
        let mutator = Mutator(
            ["[\(good)]", "[\(good),\(good)]", #"[{"kid":"k","jwk":{"kty":"RSA"}}]"#],
            words: [
                "\"kid\":", "\"jwk\":", "\"kty\":", "\"EC\"", "\"P-256\"", "\"x\":", "\"y\":",
                "\"d\":", "\"use\":\"sig\"", "\"\(y)\"", "\"AAAA\"",
            ])
        let reader = DeviceKeyReader()
        let sealer = try ContentSealer()
        let output = ByteWriter()
        FuzzRun.feed("device-keys") { random in
            let value = mutator.next(&random)
            switch reader.choose(from: String(decoding: value, as: UTF8.self)) {
            case .absent: return nil
            case .unusable(let text): return text.isEmpty ? "no reason" : nil
            case .key(let key):
                if !isWholeJSON(Array(String(decoding: value, as: UTF8.self).utf8)) {
                    return "a key: \(self.text(value))"
                }
                // A key that was taken can be encrypted for.
                output.removeAll()
                let sealed = [UInt8](repeating: 1, count: 16).withUnsafeBytes { bytes in
                    (try? sealer.seal(
                        bytes, for: key, producer: bytes, recipient: bytes, into: output)) != nil
                }
                return sealed && output.count > 0 ? nil : "a key that cannot be used"
            }
        }
    }

    @Test func `events that come back, and tickets`() throws {
        let names = [
            "bugle-original-topic", "bugle-original-partition", "bugle-original-offset",
            "bugle-original-timestamp", "bugle-first-failed-at", "bugle-not-before",
            "bugle-targets", "bugle-fanout-at", "bugle-pending", "bugle-pending-state",
            "bugle-folded",
            "bugle-folded-count", "bugle-burst", "bugle-window-until", "bugle-cursor",
        ]
        let values = Mutator(
            [
                "push.events", "3", "1735689600000", "0", #"["shop/a/alert","shop/b"]"#,
                #"[{"n":1,"a":0}]"#, #"["e1","e2"]"#,
            ], words: ["-1", "99999999999999999999", "[", "]", "\"shop/a\"", "{\"a\":"])
        let tickets = Mutator(
            try corpus("push.expo-tickets"),
            words: ["\"ticket\":", "\"sent_at\":", "\"install_id\":", "\"kind\":\"alert\""])
        let parser = JSONParser()
        FuzzRun.feed("reentry") { random in
            var owned: [(String, [UInt8])] = []
            for name in names where Int.random(in: 0..<6, using: &random) > 0 {
                owned.append((name, values.next(&random)))
            }
            let ticket = tickets.next(&random)
            return self.withHeaders(owned) { headers in
                self.readBack(ticket, headers, parser)
            }
        }
    }

    /// What is wrong with what was read of a record that came back, or nil.
    private func readBack(
        _ value: [UInt8], _ headers: [InputHeader], _ parser: JSONParser
    ) -> String? {
        value.withUnsafeBytes { (bytes: UnsafeRawBufferPointer) -> String? in
            let record = InputRecord(
                position: RecordPosition(topic: "push.events-retry-1m", partition: 0, offset: 1),
                timestamp: UnixMillis(0), key: nil, value: bytes, headers: headers)
            do throws(Refusal) {
                let reentry = try Reentry(record, parser: parser)
                if reentry.origin.partition < 0 || reentry.origin.offset < 0 {
                    return "an origin \(reentry.origin)"
                }
            } catch {
                if error.reason.isEmpty { return "a refusal without a reason" }
            }
            do throws(Refusal) {
                let ticket = try TicketRecord(record, parser: parser)
                return ticket.id.isEmpty || !isWholeJSON(value) ? "a ticket: \(text(value))" : nil
            } catch {
                return error.reason.isEmpty ? "a refusal without a reason" : nil
            }
        }
    }

    private func withHeaders<Value>(
        _ owned: [(String, [UInt8])], _ headers: [InputHeader] = [],
        _ body: ([InputHeader]) -> Value
    ) -> Value {
        guard let (name, value) = owned.first else { return body(headers) }
        return value.withUnsafeBytes { bytes in
            withHeaders(
                Array(owned.dropFirst()), headers + [InputHeader(name: name, value: bytes)], body)
        }
    }

    @Test func `the configuration, and its routes`() throws {
        let configuration = """
            kafka: {brokers: "localhost:9092", group: g, topics: {events: [{name: a, class: critical}]}}
            redis: {address: [a:1, b:2], timeout: 500ms, tls: {ca_file: ca.pem}}
            egress: {proxy: {address: "p:1", user: u, password: ${P:-x}, bypass: [a.b]}, addresses: ipv4}
            apps: &apps
              shop:
                apns: {team_id: TEAM000001, key_id: KEY0000001, key_file: k, topic: a.b}
                fcm: {service_account_file: f}
                webpush: {subject: "mailto:a@b.com", vapid_keys: {v: {key_file: v}}}
                expo: {}
            index: {fuse: {percent: 5, window: 5m}, sweep: {interval: 1h}}
            caps: {silent: 3/1h}
            routes:
              order.*:
                title: "Order {{payload.order|x}}"
                body: "{{payload.at:date(EEEEdMMMM)}} {{count}}"
                translations: {de: {title: "B {{payload.order}}"}}
                coalesce: {window: 10s, first: send}
                ttl: 1d
            """
        let mutator = Mutator(
            [configuration] + (try corpus("routes")),
            words: [
                "{{", "}}", "|", ":date(", "&a", "*a", "<<: *apps", "- ", "\n", "  ", "!!int", "? ",
                "${", "}", "${HOME", "routes:", "apps:", "kafka:", "1d", "-5s", "99999999999h",
                "title:", "coalesce:", "'", ">", "|-", "%YAML 1.2", "---", "...", "#",
            ])
        FuzzRun.feed("configuration") { random in
            let text = String(decoding: mutator.next(&random), as: UTF8.self)
            do throws(ConfigurationErrors) {
                let read = try Configuration.parse(text: text, environment: ["P": "q"])
                if read.apps.isEmpty { return "a configuration without apps" }
                if read.kafka.brokers.isEmpty { return "a configuration without brokers" }
                _ = try RouteTable.compile(read)
                return nil
            } catch {
                for problem in error.problems {
                    if problem.message.isEmpty { return "a problem without words" }
                    if problem.line < 0 || problem.line > 70_000 { return "line \(problem.line)" }
                }
                return error.problems.isEmpty ? "an error without a problem" : nil
            }
        }
    }
}
