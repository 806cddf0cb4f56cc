/// What is wrong with properties that librdkafka takes one by one and refuses together, when it
/// makes a client of them.
enum SetupFault {
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
