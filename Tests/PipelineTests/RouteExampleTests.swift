import Base
import Config
import Foundation
import JSON
import Routes
import Testing
import TokenIndex

@testable import Pipeline

/// The examples in `topics/examples/routes`: what is promised there is what is sent.
@Suite struct `Examples of routes` {
    private static let folder = URL(filePath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "topics/examples/routes")

    private static let names: [String] = {
        let files = try? FileManager.default.contentsOfDirectory(
            at: folder, includingPropertiesForKeys: nil)
        return (files ?? []).filter { $0.pathExtension == "json" }
            .map { $0.deletingPathExtension().lastPathComponent }.sorted()
    }()

    private func configuration() throws -> Configuration {
        let text = try String(
            contentsOf: Self.folder.appending(path: "bugle.yaml"), encoding: .utf8)
        return try Configuration.parse(
            text: text, environment: ["APNS_KEY": "k", "FCM_ACCOUNT": "a", "VAPID_KEY": "v"])
    }

    @Test func `there is one for each route, and one of a burst`() throws {
        #expect(Self.names.count == 12)
        #expect(try RouteTable.compile(try configuration()).routes.count == 11)
    }

    @Test func `nothing about them is doubtful`() throws {
        let configuration = try configuration()
        #expect(try RouteTable.compile(configuration).lints(configuration).isEmpty)
    }

    @Test(arguments: names)
    func `the requests are the expected ones`(_ name: String) throws {
        let configuration = try configuration()
        let parser = JSONParser()
        let bytes = try Data(contentsOf: Self.folder.appending(path: "\(name).json"))
        let root = try parser.parse(Array(bytes))
        let event = try #require(root["event"])
        let explainer = EventExplainer(
            configuration, try RouteTable.compile(configuration), projects: [:])
        var devices: [DeviceAddress] = []
        try root["devices"]?.forEachElement { devices.append(try address($0)) }
        let explanation = try explainer.explain(
            compact(event), count: root["burst"]?.int64 ?? 1, to: devices,
            at: try #require(RFC3339.parse("2026-12-01T09:00:01Z")))
        let writer = ByteWriter()
        write(explanation, to: writer)
        let expected = root["expected"].map { String(decoding: compact($0), as: UTF8.self) } ?? ""
        #expect(writer.text == expected)
    }

    private func compact(_ value: JSONValue) -> [UInt8] {
        let writer = ByteWriter()
        value.writeCompact(to: writer)
        return writer.array
    }

    private func address(_ value: JSONValue) throws -> DeviceAddress {
        let id = try #require(
            AddressID(
                app: "shop", installID: value["install_id"]?.string ?? "",
                kind: value["kind"]?.string ?? "alert"))
        let key = Array(id.text.utf8)
        let record = try key.withUnsafeBytes { key in
            try compact(value).withUnsafeBytes { value in
                try RegistrationRecord.decode(
                    key: key, value: value, timestamp: 0, parser: JSONParser())
            }
        }
        guard case .registered(let address) = record else {
            throw RecordError.missing(field: "token")
        }
        return address
    }

    /// The members of `expected`: by address, the header fields that say something about the
    /// content, and the body.
    private func write(_ explanation: Explanation, to writer: ByteWriter) {
        let told = [
            "apns-topic", "apns-push-type", "apns-priority", "apns-expiration", "apns-collapse-id",
            "ttl", "urgency", "topic",
        ]
        var object = JSONObjectWriter(writer)
        object.string("route", orNull: explanation.route)
        object.name("requests")
        writer.append("{")
        for (index, target) in explanation.targets.enumerated() {
            if index > 0 { writer.append(",") }
            writer.append(jsonString: target.addressID)
            writer.append(":")
            var answer = JSONObjectWriter(writer)
            switch target.answer {
            case .request(let request):
                for field in request.fields where told.contains(field.name) {
                    writer.append(writer.bytes.last == 0x7B ? "" : ",")
                    writer.append(jsonString: field.name)
                    writer.append(":")
                    writer.append(jsonString: field.value)
                }
                writer.append(writer.bytes.last == 0x7B ? "\"body\":" : ",\"body\":")
                writer.append(request.body)
                if let secret = request.secret {
                    writer.append(",\"encrypted\":")
                    writer.append(secret)
                }
            case .suppressed(let reason): answer.string("suppressed", reason)
            case .rejected(let reason, let detail):
                answer.string("rejected", "\(reason): \(detail)")
            case .expired: answer.bool("expired", true)
            }
            answer.end()
        }
        writer.append("}")
        object.end()
    }
}
