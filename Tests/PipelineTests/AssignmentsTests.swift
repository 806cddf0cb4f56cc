import Kafka
import Testing

@testable import Pipeline

@Suite struct `What the group says of a replica` {
    private static let lost = "the group has taken all partitions away and gives none"

    @Test(.timeLimit(.minutes(3)))
    func `is that it is not ready once all is lost, until it may join again`() throws {
        let world = try World(try ScriptedGateway())
        try world.start()
        #expect(world.eventually { world.hindrances.isEmpty })
        // Its right to the group is taken away while it runs: no error of these is fatal.
        world.cluster.push(
            Array(repeating: .groupUnauthorized, count: 10_000), to: .joinGroup)
        world.cluster.push([.unknownMember], to: .heartbeat)
        #expect(world.eventually { world.hindrances == [Self.lost] }, "\(world.hindrances)")
        world.cluster.clearFaults(of: .joinGroup)
        #expect(world.eventually { world.hindrances.isEmpty }, "\(world.hindrances)")
        #expect(world.stop())
    }
}
