// What keeps a connection to a broker from being used. librdkafka has few codes for it and tells the
// rest in words, which this file alone knows.

internal import CRDKafka

/// Why broker and client do not come together.
public enum ConnectionFault: Sendable, Equatable {
    /// The broker refuses the user or the password.
    case credentials
    /// The broker does not offer the mechanism of SASL.
    case mechanism
    /// The broker's certificate is for another host.
    case otherHost
    /// The broker's certificate has ended or is not valid yet.
    case outOfTime
    /// No authority that is trusted vouches for the broker's certificate.
    case untrusted
    /// The broker demands a certificate of the client, or does not accept the one it has.
    case clientCertificate
    /// The broker does not speak TLS.
    case noTLS
    /// The broker closed the connection and said nothing: it expects TLS or SASL, or neither.
    case closedUnanswered
}

extension KafkaError {
    /// What lies behind a connection that failed, as far as it can be told.
    public var connectionFault: ConnectionFault? {
        switch code {
        case RD_KAFKA_RESP_ERR__AUTHENTICATION.rawValue,
            RD_KAFKA_RESP_ERR_SASL_AUTHENTICATION_FAILED.rawValue:
            text.contains("mechanism handshake failed") ? .mechanism : .credentials
        case RD_KAFKA_RESP_ERR__SSL.rawValue: handshakeFault
        case RD_KAFKA_RESP_ERR__TRANSPORT.rawValue: closingFault
        default: nil
        }
    }

    private var handshakeFault: ConnectionFault {
        if text.contains("certificate verify failed") {
            return CertificateFault.faults.first { text.contains($0.words) }?.fault ?? .untrusted
        }
        return text.contains("alert") ? .clientCertificate : .noTLS
    }

    private var closingFault: ConnectionFault? {
        // With TLS 1.3 the handshake is over before the broker has looked at the certificate.
        if text.contains("SSL alert number") { return .clientCertificate }
        let isClosed = text.contains("security.protocol") || text.contains("unexpected eof")
        return isClosed ? .closedUnanswered : nil
    }
}

/// Why a broker's certificate was refused. librdkafka's error is the same for all reasons.
enum CertificateFault {
    /// In OpenSSL's words and numbers.
    private static let reasons: [Int32: String] = [
        9: "certificate is not yet valid", 10: "certificate has expired",
        18: "self-signed certificate", 19: "self-signed certificate in certificate chain",
        20: "unable to get local issuer certificate",
        21: "unable to verify the first certificate",
        62: "hostname mismatch", 64: "IP address mismatch",
    ]

    /// Those that are not about who signed it.
    fileprivate static let faults: [(words: String, fault: ConnectionFault)] = [
        ("hostname mismatch", .otherHost), ("IP address mismatch", .otherHost),
        ("has expired", .outOfTime), ("not yet valid", .outOfTime),
    ]

    /// The facility and the words of the line in which librdkafka says what `explain` wrote.
    private static let facility = "SSLCERTVRFY"
    private static let lead = "verification callback failed: "

    /// Has a client leave OpenSSL's verdict as it is, with its reason for the log.
    static func explain(in conf: OpaquePointer) {
        rd_kafka_conf_set_ssl_cert_verify_cb(conf) { _, _, _, error, _, _, _, text, size, _ in
            guard let error else { return 0 }
            if error.pointee == 0 { return 1 }
            CertificateFault.write(CertificateFault.reason(of: error.pointee), to: text, size)
            return 0
        }
    }

    private static func reason(of code: Int32) -> String {
        reasons[code] ?? "error \(code) of the verification"
    }

    private static func write(
        _ reason: String, to text: UnsafeMutablePointer<CChar>?, _ size: Int
    ) {
        guard let text, size > 0 else { return }
        let bytes = reason.utf8.prefix(size - 1)
        for (index, byte) in bytes.enumerated() { text[index] = CChar(bitPattern: byte) }
        text[bytes.count] = 0
    }

    /// The reason in a line of the log.
    static func reason(in line: KafkaLogLine) -> String? {
        guard line.facility == facility, let found = line.text.firstRange(of: lead) else {
            return nil
        }
        return String(line.text[found.upperBound...])
    }
}
