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

private func refusal(of value: [UInt8]) -> Refusal? {
    let body = ByteWriter(capacity: value.count)
    body.append(value)
    let parser = JSONParser()
    let record = InputRecord(
        position: RecordPosition(topic: "push.events", partition: 0, offset: 0),
        timestamp: UnixMillis(1_735_689_600_000), key: nil, value: body.bytes, headers: [])
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
}
