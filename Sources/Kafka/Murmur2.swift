// The partitioner of Java's producer, so that the place of a key can be computed and checked
// without asking librdkafka.

internal import CRDKafka

/// Java's default partitioner for records with a key.
public enum Murmur2 {
    /// The partition out of `count` that Java's producer, and librdkafka with a murmur2
    /// partitioner, choose for `key`.
    public static func partition(of key: UnsafeRawBufferPointer, count: Int32) -> Int32 {
        precondition(count > 0)
        return Int32(hash(key) & 0x7fff_ffff) % count
    }

    /// The 32-bit hash of `key`, with the seed that Kafka uses.
    public static func hash(_ key: UnsafeRawBufferPointer) -> UInt32 {
        let multiplier: UInt32 = 0x5bd1_e995
        var hash: UInt32 = 0x9747_b28c ^ UInt32(truncatingIfNeeded: key.count)
        var offset = 0
        while offset + 4 <= key.count {
            var word = UInt32(
                littleEndian: key.loadUnaligned(fromByteOffset: offset, as: UInt32.self))
            word = word &* multiplier
            word ^= word >> 24
            word = word &* multiplier
            hash = hash &* multiplier
            hash ^= word
            offset += 4
        }
        let rest = key.count - offset
        if rest >= 3 { hash ^= UInt32(key[offset + 2]) << 16 }
        if rest >= 2 { hash ^= UInt32(key[offset + 1]) << 8 }
        if rest >= 1 {
            hash ^= UInt32(key[offset])
            hash = hash &* multiplier
        }
        hash ^= hash >> 13
        hash = hash &* multiplier
        hash ^= hash >> 15
        return hash
    }

    /// What librdkafka's own partitioner answers: the reference for tests.
    static func reference(_ key: UnsafeRawBufferPointer, count: Int32) -> Int32 {
        rd_kafka_msg_partitioner_murmur2(nil, key.baseAddress, key.count, count, nil, nil)
    }
}
