internal import Base
internal import Config
internal import JSON
internal import Kafka
internal import Redis

/// What broker, Redis and gateways say to a configuration.
internal struct OnlineCheck {
    let configuration: Configuration

    init(_ configuration: Configuration) { self.configuration = configuration }

    /// A clock that differs by more makes tokens and expiries wrong.
    private static let clockTolerance = TimeSpan.seconds(5)

    func run() -> [Finding] {
        kafka() + redis()
            + (configuration.roles.contains(.dispatch) ? CredentialCheck(configuration).run() : [])
    }

    // MARK: - Kafka

    private func kafka() -> [Finding] {
        // What no client can be made of was found without asking anybody.
        guard let cluster = try? ClusterAccess(configuration) else { return [] }
        let partitions: [String: Int32]
        do throws(Failure) {
            partitions = try cluster.partitionCounts()
        } catch {
            return error.lines.map { .error($0) }
        }
        let found = topics(cluster, partitions)
        guard !found.contains(where: { $0.level == .error }) else { return found }
        return found + transactions(cluster)
            + configuration.kafka.topics.events.flatMap { sample($0.name, cluster) }
    }

    private func topics(_ cluster: ClusterAccess, _ partitions: [String: Int32]) -> [Finding] {
        let names = configuration.kafka.topics
        let known = names.events.compactMap { partitions[$0.name] }.first { $0 > 0 }
        let wanted = TopicTable.topics(names, partitions: known ?? TopicTable.partitions)
        let missing = wanted.map(\.name).filter {
            (partitions[$0] ?? 0) == 0 && $0 != names.users
        }
        if !missing.isEmpty {
            return [
                .error(
                    "topics do not exist: \(missing.joined(separator: ", ")); "
                        + "bugle topics apply --config FILE creates them")
            ]
        }
        let settings =
            (try? cluster.admin.topicSettings(wanted.map(\.name), timeout: .seconds(10))) ?? [:]
        let plan = TopicPlan(wanted, partitions: partitions, settings: settings)
        let isMissingUsers = (partitions[names.users] ?? 0) == 0
        let unequal = wanted.filter {
            partitions[$0.name] != $0.partitions && !($0.name == names.users && isMissingUsers)
        }
        var findings: [Finding] = unequal.map { topic in
            .error(
                "\(topic.name) has \(partitions[topic.name] ?? 0) partitions and "
                    + "\(names.events[0].name) has \(topic.partitions): all topics need the same "
                    + "number; create it anew")
        }
        let others = TopicPlan(
            wanted.filter { !unequal.contains($0) && partitions[$0.name] != nil },
            partitions: partitions, settings: settings)
        findings += others.drift.map { .warning($0) }
        if isMissingUsers {
            findings.append(
                .note(
                    "\(names.users) does not exist: nothing is known of people but their devices"))
        }
        if unequal.isEmpty {
            findings.append(
                .ok(
                    "kafka: \(plan.entries.count - plan.missing.count) topics with \(known ?? 0) partitions each"
                ))
        }
        return findings
    }

    /// Whether the cluster lets this group make transactions.
    private func transactions(_ cluster: ClusterAccess) -> [Finding] {
        let kafka = configuration.kafka
        guard kafka.commit == .transactional, configuration.roles.contains(.dispatch) else {
            return []
        }
        do throws(CommitterFailure) {
            let answered = try TransactionProbe.ask(
                cluster.configuration, group: kafka.group, timeout: .seconds(10))
            guard answered else {
                return [.warning("kafka: the coordinator of transactions does not answer yet")]
            }
            let name =
                kafka.isInstanceLeased ? "named by a lease in Redis" : kafka.instance
            return [.ok("kafka: transactions are offered; this replica is \(name)")]
        } catch {
            return [.error("kafka: \(error)")]
        }
    }

    /// Looks at the newest records: do producers put a user's events where they belong?
    private func sample(_ topic: String, _ cluster: ClusterAccess) -> [Finding] {
        do throws(KafkaError) {
            let sample = try RoutingSample(
                topic, cluster: cluster,
                takesUserFromSubject: configuration.cloudEvents.userFromSubject)
            return sample.findings
        } catch {
            return [.warning(cluster.text(of: error, doing: "read a sample of \(topic)"))]
        }
    }

    // MARK: - Redis

    internal func redis() -> [Finding] {
        guard configuration.index.store == .redis else { return [] }
        let connection: RedisConfiguration
        do throws(Failure) {
            connection = try IndexStore.connection(configuration.redis)
        } catch {
            return error.lines.map { .error($0) }
        }
        let address = configuration.redis.addressText
        switch RedisProbe.ask(connection) {
        case .failure(let error):
            return [
                .error(RedisAdvice.text(on: error, at: address, usesTLS: connection.tls != nil))
            ]
        case .success(let answer) where answer.isPartOfCluster:
            return [.error(RedisAdvice.text(on: .partOfCluster, at: address, usesTLS: false))]
        case .success(let answer): return findings(answer, address)
        }
    }

    private func findings(_ answer: RedisProbe.Answer, _ address: String) -> [Finding] {
        var findings: [Finding] = answer.evictionPolicies.sorted().filter { $0 != "noeviction" }
            .map { policy in
                .warning(
                    "redis: maxmemory-policy is \(policy), and keys of the index may vanish: users "
                        + "would lose their devices; CONFIG SET maxmemory-policy noeviction")
            }
        if let time = answer.time {
            let difference = SystemTime.shared.wall - time
            if difference > Self.clockTolerance || .zero - difference > Self.clockTolerance {
                findings.append(
                    .warning(
                        "clock: this machine and Redis differ by \(difference.millis) ms; gateways "
                            + "refuse tokens of a wrong clock; run a time service on both"))
            }
        }
        let size = answer.masters.map { " as a cluster with \($0) masters" } ?? ""
        findings.append(.ok("redis: \(address) answers\(size)"))
        return findings
    }
}
