// The commands every connection starts with, all in one write: AUTH, the question for the
// cluster's map, SELECT, CLIENT SETNAME, and one that shows whether the server serves.

internal import Base

/// What a greeting found out.
internal enum GreetingOutcome {
    case failed(RedisError)
    /// The server serves; nobody asked whether it is a cluster's.
    case served
    /// The server is a single one, or may not be asked.
    case alone
    /// The server is a node of a cluster.
    case cluster(SlotMap)
}

/// Sends a greeting and tells its outcome once; loop-confined.
internal final class Greeting: RedisReplyHandler {
    private enum Step: UInt64 { case auth, topology, select, name, last }

    private let configuration: RedisConfiguration
    private let endpoint: RedisEndpoint
    private let asksTopology: Bool
    private let heartbeat: [String]
    private var outcome = GreetingOutcome.served
    private var done: ((GreetingOutcome) -> Void)?

    init(
        _ configuration: RedisConfiguration, to endpoint: RedisEndpoint, _ asksTopology: Bool,
        _ heartbeat: [String], _ done: @escaping (GreetingOutcome) -> Void
    ) {
        self.configuration = configuration
        self.endpoint = endpoint
        self.asksTopology = asksTopology
        self.heartbeat = heartbeat
        self.done = done
    }

    func send(on connection: RedisConnection) {
        for (step, arguments) in commands {
            _ = connection.send(to: self, tag: step.rawValue) { writer in
                writer.append(commandOf: arguments.count)
                for argument in arguments { writer.append(argument: argument) }
            }
        }
    }

    private var commands: [(Step, [String])] {
        var commands: [(Step, [String])] = []
        if configuration.password != nil || configuration.user != nil {
            let user = configuration.user.map { [$0] } ?? []
            // A user without a password takes any.
            commands.append((.auth, ["AUTH"] + user + [configuration.password ?? ""]))
        }
        if asksTopology { commands.append((.topology, ["CLUSTER", "SLOTS"])) }
        if configuration.database != 0 {
            commands.append((.select, ["SELECT", String(configuration.database)]))
        }
        if let name = configuration.clientName {
            commands.append((.name, ["CLIENT", "SETNAME", name]))
        }
        commands.append((.last, heartbeat))
        return commands
    }

    func replied(_ reply: RedisReply, tag: UInt64) {
        switch Step(rawValue: tag) {
        case .topology:
            guard let map = SlotMap(reply, from: endpoint) else {
                return finish(.failed(.notTheProtocol))
            }
            outcome = .cluster(map)
        case .last: finish(outcome)
        case .auth, .select, .name, nil: break
        }
    }

    func failed(_ error: RedisError, tag: UInt64) {
        guard case .refused(let refusal) = error, let step = Step(rawValue: tag) else {
            return finish(.failed(error))
        }
        switch step {
        case .auth:
            // "AUTH called without any password configured for the default user".
            finish(.failed(refusal.code == "ERR" ? .passwordNotAsked : error))
        case .topology: topologyRefused(refusal)
        case .select:
            if case .cluster = outcome { return finish(.failed(.databaseInCluster)) }
            finish(.failed(error))
        // An ACL user need not be allowed to name itself.
        case .name: break
        case .last: lastRefused(refusal)
        }
    }

    private func topologyRefused(_ refusal: RedisRefusal) {
        switch refusal.code {
        // "This instance has cluster support disabled"; or the command is not known.
        case "ERR": outcome = .alone
        case "NOPERM" where !configuration.demandsCluster: outcome = .alone
        default: finish(.failed(.refused(refusal)))
        }
    }

    private func lastRefused(_ refusal: RedisRefusal) {
        if case .cluster = outcome, refusal.isRedirection { return finish(outcome) }
        if refusal.isRedirection { return finish(.failed(.partOfCluster)) }
        // An ACL user need not be allowed to ping, and a server that takes no writes now may
        // answer questions.
        if refusal.concernsServer { return finish(.failed(.refused(refusal))) }
        finish(outcome)
    }

    private func finish(_ outcome: GreetingOutcome) {
        let done = done
        self.done = nil
        done?(outcome)
    }
}
