import Base
import Telemetry
import Testing

@testable import Pipeline

@Suite struct `The consumer's lag` {
    @Test func `what is not complete is the lag, in records and by its age`() throws {
        let gateway = try ScriptedGateway { _, _ in .hold }
        let world = try World(gateway, lanes: 1)
        try world.register("phone", user: "ada")
        try world.start()
        for number in 0..<3 { try world.publish(id: "e\(number)", user: "ada") }
        try world.flush()
        func value(of name: String) -> Double {
            let bytes = ByteWriter()
            world.registry.writeExposition(to: bytes)
            let lines = String(decoding: bytes.bytes, as: UTF8.self).split(separator: "\n")
            let line = lines.first { $0.hasPrefix("\(name) ") }
            return line.flatMap { Double($0.split(separator: " ")[1]) } ?? -1
        }
        #expect(world.eventually { value(of: "bugle_consumer_lag_records") == 3 })
        #expect(world.eventually { value(of: "bugle_consumer_lag_seconds") > 0.5 })
        gateway.release()
        #expect(world.eventually { value(of: "bugle_consumer_lag_records") == 0 })
        #expect(world.eventually { value(of: "bugle_consumer_lag_seconds") == 0 })
    }
}
