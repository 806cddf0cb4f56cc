import CRDKafka
import Testing

@testable import Kafka

/// The texts are those of librdkafka 2.0.2 with OpenSSL 3.0.
@Suite struct ConnectionFaultTests {
    @Test(arguments: [
        (
            RD_KAFKA_RESP_ERR__AUTHENTICATION,
            "sasl_ssl://b:9/bootstrap: SASL authentication error: Authentication failed (after 0ms "
                + "in state AUTH_REQ)", ConnectionFault.credentials
        ),
        (
            RD_KAFKA_RESP_ERR__AUTHENTICATION,
            "sasl_ssl://b:9/bootstrap: SASL SCRAM-SHA-256 mechanism handshake failed: Broker: "
                + "Unsupported SASL mechanism: broker's supported mechanisms: PLAIN", .mechanism
        ),
        (
            RD_KAFKA_RESP_ERR__SSL,
            "ssl://b:9/bootstrap: SSL handshake failed: error:0A000086:SSL routines::certificate "
                + "verify failed: broker certificate could not be verified, verify that "
                + "ssl.ca.location is correctly configured: hostname mismatch", .otherHost
        ),
        (
            RD_KAFKA_RESP_ERR__SSL,
            "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker "
                + "certificate could not be verified: certificate has expired", .outOfTime
        ),
        (
            RD_KAFKA_RESP_ERR__SSL,
            "SSL handshake failed: error:0A000086:SSL routines::certificate verify failed: broker "
                + "certificate could not be verified: self-signed certificate", .untrusted
        ),
        (
            RD_KAFKA_RESP_ERR__SSL,
            "SSL handshake failed: error:0A000410:SSL routines::sslv3 alert handshake failure: SSL "
                + "alert number 40", .clientCertificate
        ),
        (
            RD_KAFKA_RESP_ERR__SSL,
            "SSL handshake failed: error:0A00010B:SSL routines::wrong version number: connecting to "
                + "a PLAINTEXT broker listener?", .noTLS
        ),
        (
            RD_KAFKA_RESP_ERR__TRANSPORT,
            "Receive failed: error:0A00045C:SSL routines::tlsv13 alert certificate required: SSL "
                + "alert number 116 (after 0ms in state APIVERSION_QUERY)", .clientCertificate
        ),
        (
            RD_KAFKA_RESP_ERR__TRANSPORT,
            "b:9/bootstrap: Disconnected while requesting ApiVersion: might be caused by incorrect "
                + "security.protocol configuration (connecting to a SSL listener?)",
            .closedUnanswered
        ),
    ])
    func `words tell the fault`(
        code: rd_kafka_resp_err_t, text: String, fault: ConnectionFault
    ) {
        #expect(KafkaError(code, text).connectionFault == fault)
    }

    @Test func `a broker that is not there has none`() {
        let text = "b:9/bootstrap: Connect to ipv4#127.0.0.1:9 failed: Connection refused"
        #expect(KafkaError(RD_KAFKA_RESP_ERR__TRANSPORT, text).connectionFault == nil)
        #expect(KafkaError(RD_KAFKA_RESP_ERR__TIMED_OUT).connectionFault == nil)
    }
}
