internal import Base
internal import Config
internal import Kafka
internal import Telemetry

/// The Kafka cluster of a configuration: client settings, and questions whose failures become
/// lines for a person.
internal struct ClusterAccess {
    /// How to reach it.
    let configuration: KafkaConfiguration
    /// For questions.
    let admin: Admin

    private static let timeout = TimeSpan.seconds(5)

    /// The clients' settings, with secrets read from their files.
    init(_ configuration: Configuration, log: Log? = nil) throws(Failure) {
        try self.init(Self.settings(configuration, log: log))
    }

    /// A cluster at an address.
    init(_ configuration: KafkaConfiguration) throws(Failure) {
        self.configuration = configuration
        do throws(KafkaError) {
            admin = try Admin(configuration)
        } catch {
            throw .failed(error.kind == .configuration ? error.text : "kafka: \(error)")
        }
    }

    /// The clients' settings, with secrets read from their files.
    static func settings(
        _ configuration: Configuration, log: Log?
    ) throws(Failure) -> KafkaConfiguration {
        var properties: [String: String] = [:]
        for property in configuration.kafka.properties {
            do throws(SecretSourceError) {
                properties[property.name] = try property.value.read().exposed
            } catch {
                throw .failed("kafka.properties.\(property.name): \(error)")
            }
        }
        var settings = KafkaConfiguration(
            bootstrapServers: configuration.kafka.brokers, clientID: "bugle",
            properties: properties)
        if let log = log?.named("kafka") { settings.log = { KafkaLog.write($0, to: log) } }
        return settings
    }

    /// The number of partitions of every topic.
    func partitionCounts() throws(Failure) -> [String: Int32] {
        do throws(KafkaError) {
            let cluster = try admin.describeCluster(timeout: Self.timeout)
            return Dictionary(
                cluster.topics.map { ($0.name, $0.partitions) }, uniquingKeysWith: { $1 })
        } catch {
            throw failure(error, doing: "list topics")
        }
    }

    /// What an error of a client means for a person.
    func failure(_ error: KafkaError, doing what: String) -> Failure {
        .failed(text(of: error, doing: what))
    }

    /// The same as a text.
    func text(of error: KafkaError, doing what: String) -> String {
        KafkaAdvice.text(on: error, of: configuration, doing: what)
    }
}

/// librdkafka's own lines in the program's log.
internal enum KafkaLog {
    static func write(_ line: KafkaLogLine, to log: Log) {
        // Properties are passed to consumers and producers alike; each finds those of the other
        // worth a warning.
        guard line.facility != "CONFWARN" else { return }
        let level: LogLevel =
            switch line.level {
            case ...3: .error
            case 4: .warning
            case 5, 6: .info
            default: .debug
            }
        log.write(level, line.text, ["facility": LogValue(line.facility)])
    }
}
