// APNs with a client certificate in place of provider tokens: one certificate for one app, with
// connections of its own ("Establishing a certificate-based connection to APNs").

internal import Config
public import Crypto
internal import Gateways

extension PushApp {
    /// APNs for one app that shows a certificate.
    public struct CertificateAPNs: Sendable {
        /// The bundle id.
        public var topic: String
        /// The certificate and its key.
        public var identity: TLSContext.Identity
        /// Tells the certificate from others; connections are bound to it.
        public var fingerprint: String
        /// Where production addresses are sent.
        public var production: GatewayEndpoint
        /// Where sandbox addresses are sent.
        public var sandbox: GatewayEndpoint

        /// Reads the certificate; throws what is wrong with it, its key, or its topics.
        public init(
            topic: String, identity: TLSContext.Identity, production: GatewayEndpoint,
            sandbox: GatewayEndpoint
        ) throws(TLSError) {
            let certificate = try PushCertificate(of: identity)
            guard certificate.topics.isEmpty || certificate.topics.contains(topic) else {
                throw TLSError(
                    .material,
                    "the certificate is for \(certificate.topics.joined(separator: ", ")), not for "
                        + "topic \(topic)")
            }
            self.topic = topic
            self.identity = identity
            fingerprint = certificate.fingerprint
            self.production = production
            self.sandbox = sandbox
        }
    }
}

extension PushApp.CertificateAPNs {
    /// Names the certificate in verdicts and fuses; connections are bound to it.
    internal var name: String { "certificate.\(fingerprint)" }

    /// As the configuration says it; nil when it names no certificate.
    internal init?(
        _ apns: Configuration.APNs, trusting authorities: TLSAuthorities, _ path: String
    ) throws(PushAppError) {
        guard let file = apns.certificateFile, let keyFile = apns.key.path else { return nil }
        do throws(TLSError) {
            try self.init(
                topic: apns.topic,
                identity: TLSContext.Identity(certificateFile: file, keyFile: keyFile),
                production: GatewayEndpoint(apns.production, trusting: authorities),
                sandbox: GatewayEndpoint(apns.sandbox, trusting: authorities))
        } catch {
            throw PushAppError(setting: "\(path).cert_file", file: nil, problem: error.text)
        }
    }
}
