import Config
import Foundation
import Testing

@testable import Bugle

@Suite struct AccessPlanTests {
    @Test(arguments: [(1, 2, 24), (3, 2, 24), (5, 2, 30), (8, 4, 64), (40, 2, 160)])
    func `gives every lane equally many partitions, with room to double`(
        replicas: Int, lanes: Int, partitions: Int
    ) {
        let advice = PartitionAdvice(replicas: replicas, lanes: lanes)
        #expect(advice.recommended == partitions)
        #expect(partitions % (replicas * lanes) == 0 && partitions >= 2 * replicas * lanes)
    }

    @Test(arguments: [(3, 24, true), (5, 24, false), (30, 24, false), (16, 24, false)])
    func `objects to numbers that do not suit`(replicas: Int, partitions: Int, suits: Bool) {
        let advice = PartitionAdvice(replicas: replicas, lanes: 2)
        #expect((advice.objection(to: partitions) == nil) == suits)
    }

    /// The first words of the table's lines that make up each principal.
    private static let lines = [
        "bugle": ["Bugle"], "publishers": ["services that publish"],
        "devices": ["device service"], "accounts": ["account service"],
        "acknowledgements": ["whoever collects"], "analysts": ["analysts"],
        "operators": ["whoever runs", "whoever pulls"],
    ]

    @Test func `gives the rights that the page of the topics promises, and no more`() throws {
        let page = try String(
            contentsOf: URL(filePath: #filePath).deletingLastPathComponent()
                .appending(path: "../../topics/README.md").standardized, encoding: .utf8)
        let section = try #require(page.components(separatedBy: "### Who may do what").last)
        let rows = section.components(separatedBy: "\n## ")[0].split(separator: "\n")
            .filter { $0.hasPrefix("| ") }.map { $0.components(separatedBy: " | ") }
        let configuration = try Configuration.parse(
            text: """
                kafka: {brokers: "localhost:9092"}
                apps: {shop: {fcm: {service_account: "${ACCOUNT}"}}}
                """, environment: ["ACCOUNT": "{}"])
        let plans = AccessPlan.all(configuration)
        #expect(Set(plans.map(\.principal)) == Set(Self.lines.keys))
        for plan in plans {
            let own = rows.filter { row in
                Self.lines[plan.principal]?.contains { row[0].hasPrefix("| \($0)") } == true
            }
            #expect(!own.isEmpty)
            for (column, operation) in [(1, "Read"), (2, "Write")] {
                let promised = Set(own.flatMap { topics(in: $0[column]) })
                let given = Set(
                    plan.rights.filter {
                        $0.resource == "topic" && $0.operations.contains(operation)
                    }.map { family(of: $0.name) })
                #expect(given == promised, "\(plan.principal) \(operation)")
            }
        }
    }

    private func topics(in cell: String) -> [String] {
        cell.components(separatedBy: "`").filter { $0.hasPrefix("push.") }
    }

    /// A topic's name, those of retries and parked events by what they begin with.
    private func family(of name: String) -> String {
        for family in ["push.events-retry-", "push.events-parked-"] where name.hasPrefix(family) {
            return family + "*"
        }
        return name
    }
}
