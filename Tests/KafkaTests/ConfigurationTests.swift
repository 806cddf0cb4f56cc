import Base
import Kafka
import Testing

@Suite struct ConfigurationTests {
    private func failure(_ properties: [String: String]) -> String {
        let configuration = KafkaConfiguration(
            bootstrapServers: "127.0.0.1:9092", properties: properties)
        do {
            try configuration.validate()
            return ""
        } catch {
            return error.text
        }
    }

    @Test func `an unknown property is named with the nearest known one`() {
        #expect(
            failure(["sasl.mechnism": "PLAIN"])
                == "kafka.properties: unknown property sasl.mechnism; did you mean sasl.mechanisms?"
        )
        #expect(failure(["zzz": "1"]) == "kafka.properties: unknown property zzz")
    }

    @Test func `a bad value names its property`() {
        #expect(
            failure(["socket.timeout.ms": "soon"]).hasPrefix(
                "kafka.properties: socket.timeout.ms: "))
    }

    @Test(arguments: [
        "enable.auto.commit", "enable.auto.offset.store", "enable.idempotence", "acks",
    ])
    func `what the promises depend on cannot be changed`(name: String) {
        #expect(failure([name: "true"]).hasPrefix("kafka.properties: \(name) cannot be set here"))
    }

    @Test func `TLS and SASL properties pass through`() {
        #expect(
            failure([
                "security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-512",
                "sasl.username": "u", "sasl.password": "p",
            ]).isEmpty)
    }

    @Test func `a drain deadline the broker would not wait for is refused`() {
        var group = GroupConfiguration(groupID: "g")
        group.maxPollInterval = .seconds(20)
        group.sessionTimeout = .seconds(6)
        group.drainDeadline = .seconds(18)
        #expect(throws: KafkaError.self) {
            try Consumer(KafkaConfiguration(bootstrapServers: "127.0.0.1:1"), group: group)
        }
    }

    @Test func `the library names its version`() {
        #expect(KafkaLibrary.version.split(separator: ".").count >= 3)
    }

    @Test func `no bootstrap server is a clear error`() {
        #expect(throws: KafkaError.self) {
            try Admin(KafkaConfiguration(bootstrapServers: ""))
        }
    }
}
