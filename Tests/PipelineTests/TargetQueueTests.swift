// What waits for room, against a plain array.

import Base
import Testing

@testable import Pipeline

@Suite struct `A queue of targets` {
    @Test(arguments: 0..<20 as Range<UInt64>)
    func `is an array that is taken from and put back to at the front`(seed: UInt64) throws {
        var random = SeededRandom(seed: seed)
        var queue = TargetQueue()
        var model: [TargetInFlight] = []
        for _ in 0..<5_000 {
            switch Int.random(in: 0..<8, using: &random) {
            case 0..<4:
                let target = TargetInFlight()
                queue.append(target)
                model.append(target)
            case 4..<7:
                let first = queue.popFirst()
                #expect(first === model.first, "seed \(seed)")
                if !model.isEmpty { model.removeFirst() }
            default:
                let back = (0..<Int.random(in: 1...3, using: &random)).map { _ in TargetInFlight() }
                queue.putBack(back)
                model.insert(contentsOf: back, at: 0)
            }
            try #require(queue.count == model.count && queue.isEmpty == model.isEmpty)
            try #require(queue.first === model.first, "seed \(seed)")
        }
        while let target = queue.popFirst() { #expect(target === model.removeFirst()) }
        #expect(model.isEmpty)
    }
}
