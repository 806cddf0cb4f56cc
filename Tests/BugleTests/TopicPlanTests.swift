import Base
import Config
import Glibc
import JSON
import Testing

@testable import Bugle

@Suite struct TopicPlanTests {
    private let topics = TopicTable.topics(
        Configuration.Topics.standard, partitions: TopicTable.partitions)

    private var counts: [String: Int32] {
        Dictionary(uniqueKeysWithValues: topics.map { ($0.name, $0.partitions) })
    }

    @Test func `a topic that is not there is missing, one without partitions too`() {
        var counts = counts
        counts["push.results"] = nil
        counts["push.devices"] = 0
        let plan = TopicPlan(topics, partitions: counts, settings: [:])
        #expect(Set(plan.missing.map(\.name)) == ["push.results", "push.devices"])
        #expect(plan.drift.isEmpty)
    }

    @Test func `settings that the broker does not show are no drift`() {
        let plan = TopicPlan(topics, partitions: counts, settings: ["push.events": [:]])
        #expect(plan.entries.allSatisfy { $0.state == .present })
    }

    @Test func `other partitions and settings are drift, with the command that helps`() {
        var counts = counts
        counts["push.events-dlt"] = 3
        let plan = TopicPlan(
            topics, partitions: counts,
            settings: [
                "push.devices": ["cleanup.policy": "delete", "delete.retention.ms": "604800000"]
            ])
        #expect(plan.drift.count == 2)
        #expect(plan.drift.contains { $0.hasPrefix("push.events-dlt has 3 partitions, wanted 24") })
        #expect(
            plan.drift.contains {
                $0.hasPrefix("push.devices cleanup.policy is delete, wanted compact")
                    && $0.hasSuffix("--add-config cleanup.policy=compact")
            })
    }

    @Test func `the plan in JSON has names, numbers and settings`() throws {
        let plan = TopicPlan(topics, partitions: [:], settings: [:])
        let bytes = ByteWriter()
        plan.writeJSON(to: bytes, created: ["push.events"])
        let parser = JSONParser()
        let root = try parser.parse(bytes.bytes)
        var states: [String: String] = [:]
        root["topics"]?.forEachElement { topic in
            states[topic["name"]?.string ?? ""] = topic["state"]?.string
            let isWhole = ["push.control", "push.status"].contains(topic["name"]?.string)
            #expect(topic["partitions"]?.int64 == (isWhole ? 1 : 24))
            #expect(topic["settings"]?["max.message.bytes"]?.string == "1048588")
        }
        #expect(states["push.events"] == "created")
        #expect(states["push.results"] == "missing")
        #expect(states.count == 20)
    }
}

extension Configuration.Topics {
    /// The names of the contract.
    fileprivate static var standard: Self {
        let configuration = try? Configuration.parse(
            text: """
                kafka: {brokers: "localhost:9092"}
                apps: {shop: {fcm: {service_account: "${ACCOUNT}"}}}
                """, environment: ["ACCOUNT": "{}"])
        guard let configuration else { preconditionFailure("the smallest configuration is valid") }
        return configuration.kafka.topics
    }
}
