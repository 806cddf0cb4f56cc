import Base
import Testing

@testable import HTTP2

@Suite struct `Memory of a session` {
    @Test func `a freed block serves the next of its size`() throws {
        let memory = SessionMemory()
        let first = try #require(memory.allocate(100))
        memory.release(first)
        #expect(memory.keptBytes == 128)
        #expect(memory.allocate(112) == first)
        #expect(memory.keptBytes == 0)
        memory.release(first)
    }

    @Test func `what is kept is bounded`() throws {
        let memory = SessionMemory()
        let blocks = (0..<4096).map { _ in memory.allocate(1000) }
        for block in blocks { memory.release(block) }
        #expect(memory.keptBytes == Limits.sessionMemoryKeptBytes)
    }

    @Test func `large blocks and impossible sizes are not kept`() {
        let memory = SessionMemory()
        let large = memory.allocate(100_000)
        #expect(large != nil)
        memory.release(large)
        memory.release(nil)
        #expect(memory.keptBytes == 0)
        #expect(memory.allocateZeroed(.max, 2) == nil)
        #expect(memory.allocate(.max) == nil)
    }

    @Test(arguments: 0..<10 as Range<UInt64>)
    func `blocks keep their bytes whatever comes and goes`(seed: UInt64) throws {
        var random = SeededRandom(seed: seed)
        let memory = SessionMemory()
        var live: [(block: UnsafeMutableRawPointer, size: Int, mark: UInt8)] = []
        func check(_ entry: (block: UnsafeMutableRawPointer, size: Int, mark: UInt8)) -> Bool {
            UnsafeRawBufferPointer(start: entry.block, count: entry.size)
                .allSatisfy { $0 == entry.mark }
        }
        for step in 0..<3000 {
            let size = Int.random(in: 1...3000, using: &random)
            let mark = UInt8(truncatingIfNeeded: step)
            let action = Int.random(in: 0..<4, using: &random)
            let place = Int.random(in: 0...live.count, using: &random)
            if action < 2 || place == live.count {
                let block = try #require(
                    action == 1 ? memory.allocateZeroed(size, 1) : memory.allocate(size))
                #expect(action != 1 || check((block, size, 0)))
                fill(block, mark, size)
                live.append((block, size, mark))
            } else if action == 2 {
                let former = live[place]
                let block = try #require(memory.resize(former.block, size))
                #expect(check((block, min(size, former.size), former.mark)), "seed \(seed)")
                fill(block, mark, size)
                live[place] = (block, size, mark)
            } else {
                #expect(check(live[place]), "seed \(seed)")
                memory.release(live.remove(at: place).block)
            }
        }
        for entry in live { memory.release(entry.block) }
    }

    private func fill(_ block: UnsafeMutableRawPointer, _ mark: UInt8, _ size: Int) {
        UnsafeMutableRawBufferPointer(start: block, count: size).initializeMemory(
            as: UInt8.self, repeating: mark)
    }
}
