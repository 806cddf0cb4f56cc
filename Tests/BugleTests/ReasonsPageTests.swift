import Base
import Foundation
import Gateways
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
        #expect(VerdictSamples.of(.apns).count > 34)
        #expect(VerdictSamples.of(.webpush).count > 40)
    }

    @Test func `BadDeviceToken is not death`() {
        let rows = VerdictSamples.of(.apns).filter { $0.verdict.reason == .badDeviceToken }
        #expect(rows.count == 1)
        #expect(rows.allSatisfy { $0.verdict.countsForFuse })
        #expect(rows.allSatisfy { ReasonsPage.course(of: $0.verdict) == "`token_suspended`" })
    }
}
