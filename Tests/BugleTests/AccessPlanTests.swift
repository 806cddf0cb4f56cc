import Config
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
}
