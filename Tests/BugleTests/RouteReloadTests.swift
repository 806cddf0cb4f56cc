// What a running process does about a file of routes that changes under it.

import Config
import Glibc
import Routes
import Telemetry
import Testing

@testable import Bugle

@Suite struct `Routes that change while the process runs` {
    private static let head = """
        kafka: {brokers: "localhost:9"}
        apps:
          shop:
            expo: {}
        routes:
          first: {title: one, ttl: 1h}

        """

    private func append(_ text: String, to path: String, _ mode: String = "a") throws {
        let file = try #require(fopen(path, mode))
        fputs(text, file)
        fclose(file)
    }

    @Test func `are read once the file rests, not while it is being written`() throws {
        let path = "/tmp/bugle-routes-\(getpid())-\(UInt64.random(in: 0...UInt64.max)).yaml"
        defer { unlink(path) }
        try append(Self.head, to: path, "w")
        let configuration = try Configuration.load(path: path, environment: [:])
        var tables: [[String]] = []
        let sink = CollectingSink()
        let reload = RouteReload(
            path: path, configuration, log: Log(level: .debug, format: .json, sink: sink)
        ) { table, _ in tables.append(table.routes.map(\.name)) }
        reload.reloadIfChanged()
        #expect(tables.isEmpty)
        // Each piece leaves a whole configuration, and the first leaves one route out.
        try append(Self.head.replacing("first", with: "other"), to: path, "w")
        reload.reloadIfChanged()
        try append("  last: {title: two, ttl: 1h}\n", to: path)
        reload.reloadIfChanged()
        #expect(tables.isEmpty)
        for _ in 0..<3 { reload.reloadIfChanged() }
        #expect(tables.map { $0.sorted() } == [["last", "other"]])
        // An absent file is one that is being replaced.
        unlink(path)
        reload.reloadIfChanged()
        try append(Self.head, to: path, "w")
        for _ in 0..<3 { reload.reloadIfChanged() }
        #expect(tables.count == 2)
        #expect(!sink.lines.contains { $0.contains("the old routes stay") })
        reload.reload(because: "SIGHUP")
        #expect(tables.count == 3)
    }

    @Test func `stay as they are when the file has an app less than the process`() throws {
        let path = "/tmp/bugle-routes-\(getpid())-\(UInt64.random(in: 0...UInt64.max)).yaml"
        defer { unlink(path) }
        let both = Self.head.replacing("  shop:", with: "  bank:\n    expo: {}\n  shop:")
        try append(both, to: path, "w")
        let configuration = try Configuration.load(path: path, environment: [:])
        var count = 0
        let sink = CollectingSink()
        let reload = RouteReload(
            path: path, configuration, log: Log(level: .debug, format: .json, sink: sink)
        ) { _, _ in count += 1 }
        for renamed in ["store", "shop"] {
            try append(Self.head.replacing("shop", with: renamed), to: path, "w")
            reload.reload(because: "SIGHUP")
            #expect(count == 0)
        }
        func complaints(_ app: String) -> Int {
            sink.lines.count {
                $0.contains("the old routes stay: apps.\(app) is gone; that needs a restart")
            }
        }
        #expect(complaints("bank") == 2 && complaints("shop") == 1)
        // One app more does no harm to the others' routes.
        try append(both.replacing("  bank:", with: "  new: {expo: {}}\n  bank:"), to: path, "w")
        reload.reload(because: "SIGHUP")
        #expect(count == 1)
    }
}
