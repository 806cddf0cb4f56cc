internal import Crypto
internal import HTTP2

/// Who sends: the team of a provider token, or the app of a client certificate, which is what counts
/// when there is one ("Establishing a certificate-based connection to APNs").
enum APNsSender {
    case team(String)
    case certificate(PushCertificate)

    /// Whether it may send to an app's topic.
    func mayUse(_ topic: String, bundleID: String, facts: GatewayFacts) -> Bool {
        switch self {
        case .team(let id): facts.mayUse(bundleID: bundleID, teamID: id)
        case .certificate(let certificate): certificate.topics.contains(topic)
        }
    }

    /// The topic of a push that names none: a certificate for one topic has it.
    var defaultTopic: String? {
        guard case .certificate(let certificate) = self, certificate.topics.count == 1 else {
            return nil
        }
        return certificate.topics[0]
    }
}
