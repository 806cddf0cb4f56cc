import Base
import Kafka
import Testing

/// A ledger that an expectation can look at.
private final class Books {
    private var ledger: PartitionLedger
    init(capacity: Int = 256) { ledger = PartitionLedger(capacity: capacity) }
    func begin(_ offset: Int64) -> Bool { ledger.begin(offset) }
    func complete(_ offset: Int64) -> PartitionLedger.Completion { ledger.complete(offset) }
    var hasRoom: Bool { ledger.hasRoom }
    func isOpen(_ offset: Int64) -> Bool { ledger.isOpen(offset) }
    var floor: Int64? { ledger.floor }
    var span: Int64 { ledger.span }
    var openCount: Int { ledger.openCount }
}

@Suite struct PartitionLedgerTests {
    @Test func `the floor waits for the oldest open offset`() {
        let ledger = Books()
        #expect(ledger.floor == nil)
        for offset in Int64(0)...9 { #expect(ledger.begin(offset)) }
        for offset in Int64(1)...9 { #expect(ledger.complete(offset).floor == 0) }
        #expect(ledger.openCount == 1)
        #expect(ledger.span == 10)
        #expect(ledger.complete(0).floor == 10)
        #expect(ledger.floor == 10)
        #expect(ledger.span == 0)
    }

    @Test func `holes in the offsets are never waited for`() {
        let ledger = Books()
        for offset: Int64 in [10, 111, 112, 130] { #expect(ledger.begin(offset)) }
        #expect(ledger.complete(111).floor == 10)
        #expect(ledger.complete(130).floor == 10)
        #expect(ledger.complete(10).floor == 112)
        #expect(ledger.complete(112).floor == 131)
    }

    @Test func `a completed offset covers the hole below it`() {
        let ledger = Books()
        for offset: Int64 in [10, 111, 112, 130] { #expect(ledger.begin(offset)) }
        #expect(ledger.complete(130).first == 113)
        #expect(ledger.complete(112).first == 112)
        #expect(ledger.complete(111).first == 11)
        #expect(ledger.complete(10).first == 10)
    }

    @Test func `one open offset does not let the others run ahead without end`() {
        let dense = Books()
        for offset in Int64(0)..<20_000 { #expect(dense.begin(offset)) }
        for offset in Int64(1)..<20_000 { #expect(dense.complete(offset).floor == 0) }
        #expect(!dense.hasRoom)
        #expect(dense.complete(0).floor == 20_000)
        #expect(dense.hasRoom)

        // Holes take no room: there it is the number of events that counts.
        let sparse = Books()
        for number in Int64(0)..<255 { #expect(sparse.begin(number * 1_000)) }
        #expect(sparse.hasRoom)
        #expect(sparse.begin(255_000))
        #expect(!sparse.hasRoom)
    }

    @Test func `an offset seen before is refused`() {
        let ledger = Books()
        #expect(ledger.begin(7))
        #expect(!ledger.begin(7))
        #expect(!ledger.begin(6))
        #expect(ledger.complete(7).floor == 8)
        #expect(!ledger.begin(7))
        #expect(ledger.begin(8))
    }

    @Test(arguments: UInt64(1)...20)
    func `any order of work gives the floor of the naive model`(seed: UInt64) {
        var random = SeededRandom(seed: seed)
        let ledger = Books(capacity: 16)
        var open: [Int64] = []
        var next: Int64 = Int64.random(in: 0...5, using: &random)
        var highest: Int64?
        for _ in 0..<3_000 {
            if open.isEmpty || (open.count < 300 && Bool.random(using: &random)) {
                #expect(ledger.begin(next))
                open.append(next)
                next += Int64.random(in: 0...9, using: &random) == 0 ? 37 : 1
            } else {
                let index = Int.random(in: 0..<open.count, using: &random)
                let offset = open.remove(at: index)
                highest = max(highest ?? offset, offset)
                let floor = ledger.complete(offset).floor
                let expected = open.min() ?? ((highest ?? 0) + 1)
                #expect(floor == expected, "seed \(seed)")
                #expect(!ledger.isOpen(offset), "seed \(seed)")
            }
            #expect(ledger.openCount == open.count, "seed \(seed)")
            if let first = open.first { #expect(ledger.isOpen(first), "seed \(seed)") }
            if let lowest = open.min() { #expect(ledger.floor == lowest, "seed \(seed)") }
        }
    }

    @Test func `completing an offset that is not open stops the process`() async {
        await #expect(processExitsWith: .failure) {
            var ledger = PartitionLedger()
            _ = ledger.begin(1)
            _ = ledger.complete(1)
            _ = ledger.complete(1)
        }
    }
}
