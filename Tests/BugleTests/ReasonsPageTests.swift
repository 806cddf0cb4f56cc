import Base
import Foundation
import Gateways
import Pipeline
import Testing

@testable import Bugle

@Suite struct `The page of reasons` {
    private static let page = URL(filePath: #filePath).deletingLastPathComponent()
        .deletingLastPathComponent().deletingLastPathComponent()
        .appending(path: "topics/reasons.md")

    @Test func `it is what the tables say`() throws {
        let committed = try String(contentsOf: Self.page, encoding: .utf8)
        #expect(
            committed == ReasonsPage.text, "run: bugle reasons > topics/reasons.md")
    }

    @Test func `every reason has words and every row of a table its line`() {
        for reason in Reason.allCases {
            #expect(ReasonsPage.text.contains("\n| `\(reason.rawValue)` | \(reason.meaning) |\n"))
            #expect(reason.meaning.hasSuffix("."), "\(reason)")
        }
        for code in DeadLetterCode.allCases {
            #expect(ReasonsPage.text.contains("\n| `\(code.rawValue)` | \(code.meaning) |\n"))
            #expect(code.meaning.hasSuffix("."), "\(code)")
        }
        #expect(VerdictSamples.of(.apns).count > 34)
        #expect(VerdictSamples.of(.webpush).count > 40)
    }

    @Test func `whatever a result may name is found, once`() {
        let names = ReasonEntry.all.map(\.name)
        #expect(Set(names).count == names.count)
        #expect(Set(Reason.allCases.map(\.rawValue)).isSubset(of: names))
        #expect(Set(DeadLetterCode.allCases.map(\.rawValue)).isSubset(of: names))
        let expired = ReasonEntry.all.first { $0.name == "expired" }
        #expect(expired?.reason == .expired && expired?.code == .expired)
    }

    @Test func `BadDeviceToken is not death`() {
        let rows = VerdictSamples.of(.apns).filter { $0.verdict.reason == .badDeviceToken }
        #expect(rows.count == 1)
        #expect(rows.allSatisfy { $0.verdict.countsForFuse })
        #expect(rows.allSatisfy { ReasonsPage.course(of: $0.verdict) == "`token_suspended`" })
    }
}
