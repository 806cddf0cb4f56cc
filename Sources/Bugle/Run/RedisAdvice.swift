internal import Crypto
internal import Redis

/// What to do when Redis cannot be used.
internal enum RedisAdvice {
    /// One line: what is wrong with the server at `address`, and which setting to correct.
    static func text(on error: RedisError, at address: String, usesTLS: Bool) -> String {
        if case .atNode(let node, let error) = error {
            return text(on: error, at: "\(node)", usesTLS: usesTLS)
        }
        return "redis: " + advice(error, address, usesTLS)
    }

    private static func advice(
        _ error: RedisError, _ address: String, _ usesTLS: Bool
    ) -> String {
        switch error {
        case .refused(let refusal): advice(refusal, address)
        case .passwordNotAsked:
            "\(address) asks for no password; remove redis.password_file, or give the server one"
        case .tlsFailed(let error): advice(error, address)
        case .handshakeTimedOut: noTLS(address, "it did not answer the handshake")
        case .closedUnanswered where usesTLS: certificate(address, "it closed the connection")
        case .closedUnanswered:
            "\(address) closed the connection before it answered anything, as a server does that "
                + "expects TLS; if it does, set redis.tls"
        case .notACluster:
            "\(address) is a single server, not a node of a cluster; leave out redis.cluster, and "
                + "give one redis.address"
        case .partOfCluster:
            "\(address) is a node of a Redis Cluster; set redis.cluster: true, and allow the user "
                + "the command CLUSTER SLOTS (+cluster|slots)"
        case .databaseInCluster:
            "\(address) is a node of a Redis Cluster, which has database 0 only; leave out "
                + "redis.database"
        case .slotsUncovered:
            "\(error) (asked at \(address)); look at CLUSTER NODES, and give them one"
        case .notTheProtocol: "what answers at \(address) is not Redis; correct redis.address"
        default: "no use of \(address): \(error); start it, or correct redis.address"
        }
    }

    private static func advice(_ refusal: RedisRefusal, _ address: String) -> String {
        switch refusal.code {
        case "WRONGPASS":
            "\(address) does not know the user, or not with this password; correct redis.username "
                + "and redis.password_file"
        case "NOAUTH":
            "\(address) asks for a password; set redis.password_file, and redis.username for a "
                + "user of its ACL"
        case "NOPERM":
            "\(address) does not allow the user what the index needs; see README, Redis, for the "
                + "ACL rule"
        case "READONLY":
            "\(address) is a replica and takes no writes; correct redis.address to the master's"
        case "LOADING": "\(address) is reading its data from disk; wait until it has"
        default:
            "\(address) answers, and refuses: \(refusal); correct its state or redis.address"
        }
    }

    private static func advice(_ error: TLSError, _ address: String) -> String {
        switch error.kind {
        case .verification:
            "the certificate of \(address) is not trusted: \(error); correct redis.tls.ca_file or "
                + "redis.tls.server_name"
        case .refused, .ownCertificate: certificate(address, "\(error)")
        case .material: "redis.tls: \(error)"
        case .connection: noTLS(address, "\(error)")
        }
    }

    /// With TLS 1.3 the handshake is over before the server has looked at the certificate.
    private static func certificate(_ address: String, _ reason: String) -> String {
        "\(address) refuses the TLS connection (\(reason)); set redis.tls.cert_file and key_file to "
            + "a certificate that it trusts"
    }

    private static func noTLS(_ address: String, _ reason: String) -> String {
        "\(address) does not seem to speak TLS (\(reason)); leave out redis.tls, or correct the "
            + "port in redis.address"
    }
}
