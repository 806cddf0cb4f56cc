import Base
import Testing

@testable import Kafka

@Suite struct Murmur2Tests {
    /// The vectors of Kafka's own tests.
    @Test(arguments: [
        ("21", -973_932_308), ("foobar", -790_332_482), ("a-little-bit-long-string", -985_981_536),
        ("a-little-bit-longer-string", -1_486_304_829),
        ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971), ("abc", 479_470_107),
    ])
    func `hashes are those of the Java client`(key: String, hash: Int) {
        let found = Array(key.utf8).withUnsafeBytes { Murmur2.hash($0) }
        #expect(Int32(bitPattern: found) == Int32(hash))
    }

    @Test func `partitions are those of librdkafka's partitioner`() {
        var random = SeededRandom(seed: 20_240_229)
        for length in 0..<200 {
            let key = (0..<length).map { _ in UInt8.random(in: 0...255, using: &random) }
            let count = Int32.random(in: 1...300, using: &random)
            key.withUnsafeBytes { bytes in
                let reference = Murmur2.reference(bytes, count: count)
                #expect(Murmur2.partition(of: bytes, count: count) == reference)
            }
        }
    }
}
