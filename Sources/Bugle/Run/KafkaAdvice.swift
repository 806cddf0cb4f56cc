internal import Kafka

/// What to do when a Kafka cluster cannot be used.
internal enum KafkaAdvice {
    /// One line: what is wrong between Bugle and the brokers, and which setting to correct.
    static func text(
        on error: KafkaError, of cluster: KafkaConfiguration, doing what: String
    ) -> String {
        let place = cluster.bootstrapServers
        if let fault = error.connectionFault {
            return "kafka: \(advice(fault, place, cluster.properties)) (\(error))"
        }
        switch error.kind {
        case .unreachable:
            return "kafka: no broker answers at \(place): start it, or correct kafka.brokers and "
                + "security.protocol in kafka.properties (\(error))"
        case .configuration: return error.text
        default: return "kafka: cannot \(what) at \(place): \(error)"
        }
    }

    private static func advice(
        _ fault: ConnectionFault, _ place: String, _ properties: [String: String]
    ) -> String {
        let mechanism = properties["sasl.mechanism"] ?? properties["sasl.mechanisms"]
        let spoken = properties["security.protocol"] ?? "plaintext"
        return switch fault {
        case .credentials:
            "the broker at \(place) refuses user or password: correct sasl.username and "
                + "sasl.password in kafka.properties, and see that its users of "
                + "\(mechanism ?? "this mechanism") are meant"
        case .mechanism:
            "the broker at \(place) does not offer \(mechanism ?? "this mechanism"): correct "
                + "sasl.mechanism in kafka.properties"
        case .otherHost:
            "the certificate of the broker at \(place) is for another host: write its name in "
                + "kafka.brokers as the certificate has it, and have brokers advertise that name"
        case .outOfTime:
            "the certificate of the broker at \(place) is out of its time: have it renewed, or "
                + "correct this machine's clock"
        case .untrusted:
            "the certificate of the broker at \(place) is not trusted: set ssl.ca.location in "
                + "kafka.properties to the authority that has signed it"
        case .clientCertificate:
            "the broker at \(place) demands a client's certificate that it trusts: correct "
                + "ssl.certificate.location and ssl.key.location in kafka.properties"
        case .noTLS:
            "the broker at \(place) does not speak TLS: correct security.protocol in "
                + "kafka.properties, now \(spoken), or the port in kafka.brokers"
        case .closedUnanswered:
            "the broker at \(place) closes the connection and says nothing: correct "
                + "security.protocol in kafka.properties, now \(spoken), to what listens there "
                + "(plaintext, ssl, sasl_plaintext or sasl_ssl), or the port in kafka.brokers"
                + (spoken.lowercased().hasSuffix("ssl")
                    ? "; if it demands a client's certificate, set ssl.certificate.location" : "")
        }
    }
}
