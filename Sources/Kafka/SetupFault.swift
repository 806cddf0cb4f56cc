/// What is wrong with properties that librdkafka takes one by one and refuses together, when it
/// makes a client of them.
enum SetupFault {
    /// What librdkafka takes, and what then fails without a word at every broker.
    static func unnoticed(in properties: [String: String]) -> String? {
        let mechanism = properties["sasl.mechanism"] ?? properties["sasl.mechanisms"]
        if mechanism == "OAUTHBEARER", properties["enable.sasl.oauthbearer.unsecure.jwt"] == nil {
            return "sasl.mechanism: OAUTHBEARER is not offered, since nothing here fetches its "
                + "tokens; set PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, or use a client certificate"
        }
        let hasKey = ["ssl.key.location", "ssl.key.pem"].contains { properties[$0] != nil }
        if properties["ssl.certificate.location"] != nil, !hasKey {
            return "ssl.key.location is missing: a certificate serves nothing without its key"
        }
        return nil
    }

    /// One sentence that names the property and what to do, for librdkafka's own.
    static func text(_ reason: String, _ properties: [String: String]) -> String {
        let mechanism = properties["sasl.mechanism"] ?? properties["sasl.mechanisms"]
        if mechanism == nil, reason.contains("kerberos") {
            return "sasl.mechanism is missing, and without it librdkafka takes Kerberos's; set "
                + "PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, as your brokers have it"
        }
        if let mechanism, reason.contains("Unsupported"), reason.contains(mechanism) {
            return "sasl.mechanism: \(mechanism) is unknown here; set PLAIN, SCRAM-SHA-256 or "
                + "SCRAM-SHA-512, as your brokers have it (\(reason))"
        }
        func about(_ property: String) -> String? {
            guard reason.hasPrefix("\(property) failed") else { return nil }
            return "\(property): \(properties[property] ?? "")"
        }
        if let place = about("ssl.ca.location") ?? about("ssl.certificate.location") {
            return "\(place) holds no certificate in PEM (\(reason))"
        }
        guard let place = about("ssl.key.location") else { return reason }
        return reason.contains("key values mismatch")
            ? "\(place) is not the key of the certificate in ssl.certificate.location"
            : "\(place) cannot be read as a key in PEM; if it is encrypted, ssl.key.password is "
                + "missing or wrong (\(reason))"
    }
}
