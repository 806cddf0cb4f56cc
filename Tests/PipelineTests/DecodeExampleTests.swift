import Base
import Foundation
import JSON
import Testing

@testable import Pipeline

private let examples = URL(filePath: #filePath).deletingLastPathComponent()
    .deletingLastPathComponent().deletingLastPathComponent().appending(path: "topics/examples")

/// The examples of a folder, by name.
private func files(_ folder: String) throws -> [(name: String, bytes: [UInt8])] {
    try FileManager.default.contentsOfDirectory(
        at: examples.appending(path: folder), includingPropertiesForKeys: nil
    ).map { ($0.lastPathComponent, Array(try Data(contentsOf: $0))) }
}

private func refusal(of value: [UInt8], headers: [String: String] = [:]) -> Refusal? {
    let body = ByteWriter(capacity: value.count)
    body.append(value)
    let texts = headers.map { name, text in
        let bytes = ByteWriter(capacity: text.utf8.count + 1)
        bytes.append(Array(text.utf8))
        return (name, bytes)
    }
    let parser = JSONParser()
    let record = InputRecord(
        position: RecordPosition(topic: "push.events", partition: 0, offset: 0),
        timestamp: UnixMillis(1_735_689_600_000), key: nil, value: body.bytes,
        headers: texts.map { InputHeader(name: $0.0, value: $0.1.bytes) })
    defer { withExtendedLifetime(texts) {} }
    do throws(Refusal) {
        _ = try EventDecoder(maximumBytes: 262_144, takesUserFromSubject: true)
            .decode(record, with: parser)
        return nil
    } catch {
        return error
    }
}

@Suite struct `The published examples` {
    @Test(arguments: ["push.events", "push.events.cloudevents"])
    func `are read or refused as their schemas say`(folder: String) throws {
        let files = try files(folder)
        #expect(files.count > 4)
        for (name, bytes) in files {
            let refusal = refusal(of: bytes)
            #expect(
                (refusal != nil) == name.hasPrefix("invalid-"),
                "\(name): \(refusal?.reason ?? "read")")
        }
    }
    @Test func `of binary CloudEvents are read or refused as their schema says`() throws {
        let files = try files("push.events.cloudevents-binary")
        #expect(files.count > 4)
        for (name, bytes) in files {
            let example = try #require(
                try JSONSerialization.jsonObject(with: Data(bytes)) as? [String: Any])
            let headers = try #require(example["headers"] as? [String: String])
            let value = try JSONSerialization.data(withJSONObject: try #require(example["value"]))
            let refusal = refusal(of: Array(value), headers: headers)
            #expect(
                (refusal != nil) == name.hasPrefix("invalid-"),
                "\(name): \(refusal?.reason ?? "read")")
        }
    }

    @Test(arguments: ["ce_id", "ce_source", "ce_type"])
    func `of binary CloudEvents are none without their attributes`(missing: String) {
        var headers = [
            "ce_specversion": "1.0", "ce_id": "1", "ce_source": "/s", "ce_type": "t",
            "ce_userid": "u",
        ]
        // As a native event the value would do.
        let value = Array(#"{"type":"t","user_id":"u","notification":{"title":"t"}}"#.utf8)
        #expect(refusal(of: value, headers: headers) == nil)
        headers[missing] = nil
        let refusal = refusal(of: value, headers: headers)
        #expect(refusal?.code == .missingField)
        #expect(refusal?.reason.hasPrefix(missing.dropFirst(3)) == true)
    }
}
