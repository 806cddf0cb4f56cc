import Base
import Testing

@testable import Kafka

@Suite struct OffsetRunsTests {
    @Test func `runs that touch become one`() {
        var runs = OffsetRuns()
        runs.insert(10, upTo: 12)
        runs.insert(14, upTo: 15)
        runs.insert(20, upTo: 21)
        #expect(runs.runs.count == 3)
        runs.insert(12, upTo: 14)
        #expect(runs.runs == [.init(first: 10, end: 15), .init(first: 20, end: 21)])
        runs.insert(1, upTo: 30)
        #expect(runs.runs == [.init(first: 1, end: 30)])
        runs.removeBelow(29)
        #expect(runs.count == 1 && runs.contains(29) && !runs.contains(28))
    }

    @Test(arguments: UInt64(1)...20)
    func `any order of insertions gives the set of the naive model`(seed: UInt64) {
        var random = SeededRandom(seed: seed)
        var runs = OffsetRuns()
        var model: Set<Int64> = []
        for _ in 0..<600 {
            if Int.random(in: 0..<20, using: &random) == 0 {
                let floor = Int64.random(in: 0..<400, using: &random)
                runs.removeBelow(floor)
                model = model.filter { $0 >= floor }
            } else {
                let first = Int64.random(in: 0..<400, using: &random)
                let end = first + Int64.random(in: 0..<6, using: &random)
                let isNew = !model.isSuperset(of: first..<end)
                #expect(runs.insert(first, upTo: end) == isNew, "seed \(seed)")
                model.formUnion(first..<end)
            }
            let found = Set((0..<410).filter { runs.contains($0) })
            #expect(found == model, "seed \(seed)")
            #expect(runs.count == Int64(model.count), "seed \(seed)")
            #expect(runs.end == model.max().map { $0 + 1 }, "seed \(seed)")
            let isSorted = zip(runs.runs, runs.runs.dropFirst()).allSatisfy { $0.end < $1.first }
            #expect(isSorted, "seed \(seed)")
        }
    }
}

@Suite struct OffsetMapTests {
    private func runs(_ offsets: some Sequence<Int64>) -> OffsetRuns {
        var runs = OffsetRuns()
        for offset in offsets { runs.insert(offset, upTo: offset + 1) }
        return runs
    }

    @Test func `one open event in front of many takes a few bytes`() throws {
        let text = try #require(
            OffsetMap.encode(runs(101..<19_000), from: 100, limit: Limits.offsetMapBytes))
        #expect(text.utf8.count <= 8)
        #expect(OffsetMap.decode(text, from: 100) == runs(101..<19_000))
    }

    @Test func `nothing finished is an empty text`() {
        #expect(OffsetMap.encode(OffsetRuns(), from: 7, limit: 4) == "")
        #expect(OffsetMap.decode("", from: 7) == OffsetRuns())
    }

    /// What a lane may let run ahead, at its worst: every second event open, and a hole at the end.
    @Test func `the worst that a lane allows fits the metadata of a commit`() throws {
        var ledger = PartitionLedger()
        var finished = OffsetRuns()
        var offset: Int64 = 5
        while ledger.hasRoom {
            // Records come in handfuls; the last one starts with room for one.
            for _ in 0..<32 {
                #expect(ledger.begin(offset) == true)
                offset += 1
            }
        }
        for odd in stride(from: Int64(6), to: offset, by: 2) {
            let completion = ledger.complete(odd)
            finished.insert(completion.first, upTo: odd + 1)
        }
        let note = CommitNote(
            attempt: String(repeating: "a", count: 24), finished: finished,
            name: String(repeating: "n", count: 99))
        let text = note.text(at: 5)
        #expect(text.utf8.count <= 4096)
        #expect(CommitNote(text, at: 5)?.finished == finished)
    }

    @Test(arguments: UInt64(1)...40)
    func `holes of any size fit as well`(seed: UInt64) throws {
        var random = SeededRandom(seed: seed)
        var ledger = PartitionLedger()
        var finished = OffsetRuns()
        let base: Int64 = 1_000_000
        var offset = base
        var begun: [Int64] = []
        let hole = Int64(1) << Int64.random(in: 0..<38, using: &random)
        while ledger.hasRoom {
            for _ in 0..<32 where ledger.begin(offset) {
                begun.append(offset)
                offset += 1
                if Int.random(in: 0..<3, using: &random) == 0 {
                    offset += Int64.random(in: 0...hole, using: &random)
                }
            }
        }
        for offset in begun.dropFirst() where Bool.random(using: &random) {
            let completion = ledger.complete(offset)
            finished.insert(completion.first, upTo: offset + 1)
        }
        let text = CommitNote(finished: finished).text(at: base)
        #expect(text.utf8.count <= 4096, "seed \(seed)")
        #expect(CommitNote(text, at: base)?.finished == finished, "seed \(seed)")
    }

    @Test(arguments: UInt64(1)...60)
    func `what is written is read back`(seed: UInt64) throws {
        var random = SeededRandom(seed: seed)
        let base = Int64.random(in: 0..<1 << 40, using: &random)
        var finished = OffsetRuns()
        var offset = base + 1
        for _ in 0..<Int.random(in: 0..<80, using: &random) {
            let scale = Int64(1) << Int64.random(in: 0..<12, using: &random)
            let count = Int64.random(in: 1...scale, using: &random)
            finished.insert(offset, upTo: offset + count)
            offset += count + Int64.random(in: 1...scale, using: &random)
        }
        let text = try #require(OffsetMap.encode(finished, from: base, limit: 100_000))
        #expect(OffsetMap.decode(text, from: base) == finished, "seed \(seed)")
        #expect(OffsetMap.encode(finished, from: base, limit: text.utf8.count) == text)
        #expect(
            text.isEmpty
                || OffsetMap.encode(finished, from: base, limit: text.utf8.count - 1) == nil)
    }

    @Test(arguments: UInt64(1)...20)
    func `text from elsewhere stops nothing`(seed: UInt64) {
        var random = SeededRandom(seed: seed)
        for _ in 0..<500 {
            let bytes = (0..<Int.random(in: 0..<40, using: &random)).map { _ in
                UInt8.random(in: 0...255, using: &random)
            }
            _ = OffsetMap.decode(Base64URL.encode(bytes), from: 0)
            _ = CommitNote(String(decoding: bytes, as: UTF8.self), at: 0)
        }
        #expect(CommitNote("", at: 0) == nil)
        #expect(CommitNote("AQAPAFRCVGFza3M=", at: 0) == nil)
        #expect(CommitNote("b1 - !! name", at: 0) == nil)
        #expect(CommitNote("b1 x  bugle 7", at: 9) == CommitNote(attempt: "x", name: "bugle 7"))
    }
}
