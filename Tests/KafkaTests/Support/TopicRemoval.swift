// Takes a topic away, which Bugle itself never does: one request of the protocol, by hand.

import Base
import Glibc
import Kafka

extension TestBroker {
    /// Deletes the input topic and makes it again, empty.
    func remakeInput() throws {
        try removeInput()
        let admin = try Admin(configuration)
        let topic = NewTopic(TestMember.input, partitions: Self.partitions, replicas: 1)
        guard try admin.createTopics([topic], timeout: .seconds(20)).isEmpty else {
            throw KafkaTestError.noTopic
        }
    }

    private func removeInput() throws {
        let body = ByteWriter()
        func append(_ number: Int, bytes count: Int) {
            for shift in (0..<count).reversed() {
                body.append(UInt8(truncatingIfNeeded: number >> (8 * shift)))
            }
        }
        append(20, bytes: 2)  // DeleteTopics
        append(1, bytes: 2)  // its version
        append(1, bytes: 4)  // which request
        append(-1, bytes: 2)  // of nobody in particular
        append(1, bytes: 4)  // topics
        append(TestMember.input.utf8.count, bytes: 2)
        body.append(TestMember.input)
        append(10_000, bytes: 4)  // milliseconds
        let answer = try exchange(body.array)
        // The number of the request, the pause, one topic with its name, and its error.
        guard answer.count >= 2, answer.suffix(2) == [0, 0] else { throw KafkaTestError.noTopic }
    }

    /// Sends a request and returns its answer, both without their length.
    private func exchange(_ request: [UInt8]) throws -> [UInt8] {
        let fd = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
        guard fd >= 0 else { throw KafkaTestError.noBroker }
        defer { close(fd) }
        var address = sockaddr_in()
        address.sin_family = sa_family_t(AF_INET)
        address.sin_port = port.bigEndian
        address.sin_addr.s_addr = inet_addr("127.0.0.1")
        let connected = withUnsafePointer(to: &address) {
            $0.withMemoryRebound(to: sockaddr.self, capacity: 1) {
                connect(fd, $0, socklen_t(MemoryLayout<sockaddr_in>.size))
            }
        }
        let framed = Self.length(of: request) + request
        guard connected == 0, write(fd, framed, framed.count) == framed.count else {
            throw KafkaTestError.noBroker
        }
        let head = try Self.read(4, from: fd)
        return try Self.read(head.reduce(0) { $0 << 8 | Int($1) }, from: fd)
    }

    private static func length(of bytes: [UInt8]) -> [UInt8] {
        [24, 16, 8, 0].map { UInt8(truncatingIfNeeded: bytes.count >> $0) }
    }

    private static func read(_ count: Int, from fd: Int32) throws -> [UInt8] {
        var bytes: [UInt8] = []
        while bytes.count < count {
            var part = [UInt8](repeating: 0, count: count - bytes.count)
            let taken = Glibc.read(fd, &part, part.count)
            guard taken > 0 else { throw KafkaTestError.noBroker }
            bytes += part[..<taken]
        }
        return bytes
    }
}
