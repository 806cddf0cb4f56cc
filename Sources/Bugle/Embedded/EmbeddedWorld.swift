// Everything that `demo` and `dev` need inside one process: a Kafka cluster, the gateways, an
// index in memory. The dispatcher between them is the one of `run`, configured by a file like any
// other.

internal import Base
internal import Config
internal import Kafka
internal import Simulator
internal import Telemetry

/// The embedded parts and the dispatcher that works on them.
internal final class EmbeddedWorld {
    /// The broker.
    let cluster: MockCluster
    /// The gateways.
    let simulator: Simulator
    /// Their keys and addresses.
    let files: GatewayFiles
    /// What the dispatcher was configured by.
    let configuration: Configuration
    /// How the broker is reached.
    let kafka: KafkaConfiguration
    /// The dispatcher.
    private(set) var service: PushService?

    private let folder: StateFolder

    /// Partitions of every topic: enough that no partition comes near what the embedded broker
    /// keeps.
    static let partitions: Int32 = 24
    /// What the embedded broker keeps of a partition, in bytes.
    static let partitionBytes = 5 << 20

    /// Starts broker and gateways and creates the topics.
    init(folder: StateFolder, options: SimulatorOptions, lanes: Int?, adminPort: UInt16 = 0)
        throws(Failure)
    {
        self.folder = folder
        do throws(KafkaError) {
            cluster = try MockCluster()
        } catch {
            throw .failed("the embedded broker did not start: \(error)")
        }
        do throws(SimulatorError) {
            simulator = try Simulator(options)
        } catch {
            throw .failed("\(error)")
        }
        files = try GatewayFiles(simulator, folder: folder.path)
        let path = "\(folder.path)/bugle.yaml"
        try TextFile.write(
            Self.settings(brokers: cluster.bootstrapServers, lanes: lanes, adminPort: adminPort)
                + "apps: \(files.section)\n",
            to: path)
        configuration = try ConfigurationFile.load(path: path)
        kafka = try ClusterAccess.settings(configuration, log: nil)
        do throws(KafkaError) {
            for topic in TopicTable.topics(
                configuration.kafka.topics, partitions: Self.partitions)
            {
                try cluster.createTopic(topic.name, partitions: topic.partitions)
            }
        } catch {
            throw .failed("the embedded broker has no topics: \(error)")
        }
    }

    /// Starts the dispatcher.
    func start(log: Log, notification: (title: String, body: String?)? = nil) throws(Failure) {
        var options = PushService.Options()
        options.defaultNotification = notification
        service = try PushService(configuration, options, log: log)
    }

    /// Waits until the dispatcher is ready; false when the span has passed, true too when a
    /// signal came, which then is returned.
    func waitUntilReady(upTo span: TimeSpan) throws(Failure) -> Int32? {
        let deadline = SystemTime.shared.monotonic + span
        while true {
            let hindrances = service?.hindrances ?? ["it was not started"]
            if hindrances.isEmpty { return nil }
            if let signal = ProcessSignals.wait(upTo: .milliseconds(50)) { return signal }
            if SystemTime.shared.monotonic > deadline {
                throw .failed("the dispatcher is not ready: \(hindrances.joined(separator: "; "))")
            }
        }
    }

    /// Drains the dispatcher; false when something was left open. Broker and gateways go on, so
    /// that what they hold can be looked at.
    func stopDispatcher() -> Bool {
        let deadline = SystemTime.shared.monotonic + configuration.drainDeadline
        let isDrained = service?.stop(deadline: deadline) ?? true
        service = nil
        return isDrained
    }

    /// Drains the dispatcher and stops everything; false when something was left open.
    func stop() -> Bool {
        let isDrained = stopDispatcher()
        simulator.stop()
        folder.remove()
        return isDrained
    }

    /// The sections besides `apps`. The embedded broker forgets what a transaction commits. Nobody
    /// wants to wait an hour for a fourth silent push. Short times suit a broker that answers from the same process
    /// and waits for them before it hands out partitions.
    private static func settings(brokers: String, lanes: Int?, adminPort: UInt16) -> String {
        """
        kafka:
          brokers: \(brokers)
          commit: plain
          properties:
            session.timeout.ms: 6000
            heartbeat.interval.ms: 300
            fetch.wait.max.ms: 10
        index:
          store: memory
        caps:
          silent: none
        lanes: \(lanes.map(String.init) ?? "auto")
        admin:
          listen: 127.0.0.1:\(adminPort)
        drain_deadline: 10s

        """
    }
}
