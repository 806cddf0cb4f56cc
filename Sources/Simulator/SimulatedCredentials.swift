// Credentials made up for the simulated gateways, so that tests and demonstrations need no files
// of anybody's.

public import Base
internal import Crypto
internal import Synchronization

/// A signing key for provider tokens that the simulated APNs knows.
public struct SimulatedAPNsKey: Sendable {
    /// The team's id.
    public let teamID: String
    /// The key's id.
    public let keyID: String
    /// The private key, PKCS#8 in PEM, as in Apple's `.p8` files.
    public let privateKeyPEM: String
}

/// A service account that the simulated token endpoint knows.
public struct SimulatedServiceAccount: Sendable {
    /// The account's address.
    public let email: String
    /// The project it belongs to.
    public let projectID: String
    /// The key file as Google hands it out.
    public let json: String
}

/// A key for VAPID tokens.
public struct SimulatedVAPIDKey: Sendable {
    /// The private key, PKCS#8 in PEM.
    public let privateKeyPEM: String
    /// The public key as browsers take it, base64url.
    public let publicKey: String
}

extension Simulator {
    /// Makes a key for VAPID tokens. Push services take any; a subscription may be bound to one.
    public func makeVAPIDKey() throws -> SimulatedVAPIDKey {
        let pair = try KeyPair.generate(for: .es256)
        let key = try VerifyingKey(
            pem: pair.publicKeyPEM, for: .es256, setting: "simulated VAPID key")
        return SimulatedVAPIDKey(
            privateKeyPEM: pair.privateKeyPEM, publicKey: Base64URL.encode(key.p256Point ?? []))
    }

    /// The endpoint of a subscription at the service of a browser: `google`, `mozilla`, `apple`,
    /// `windows` or `other`.
    public func endpoint(of subscription: String, at browser: String = "other") -> String {
        "https://\(browser).localhost:\(port(of: .webpush))/push/\(subscription)"
    }

    /// Makes a push certificate with its key, in PEM: for an app's bundle id and its topics.
    public func makePushCertificate(
        bundleID: String, topics: [String]? = nil, isForSandboxOnly: Bool = false
    ) throws -> (certificatePEM: String, keyPEM: String) {
        try pushCertificates.withLock {
            try $0.issuePushCertificate(
                bundleID: bundleID, topics: topics ?? [bundleID],
                isForSandboxOnly: isForSandboxOnly)
        }
    }

    /// Makes a signing key and registers it for a team; ids are ten letters and digits.
    public func makeAPNsKey(
        teamID: String = "TEAM000001", keyID: String = "KEY0000001",
        environments: Set<GatewayEnvironment> = [.production, .sandbox]
    ) throws -> SimulatedAPNsKey {
        let pair = try KeyPair.generate(for: .es256)
        let key = try VerifyingKey(
            pem: pair.publicKeyPEM, for: .es256, setting: "simulated APNs key")
        facts.addAPNsKey(teamID: teamID, keyID: keyID, key, environments: environments)
        return SimulatedAPNsKey(teamID: teamID, keyID: keyID, privateKeyPEM: pair.privateKeyPEM)
    }

    /// Makes a service account with a key and registers it for its project and for others.
    public func makeServiceAccount(
        projectID: String = "demo-project", alsoFor others: Set<String> = [],
        name: String = "push"
    ) throws -> SimulatedServiceAccount {
        let pair = try KeyPair.generate(for: .rs256)
        let key = try VerifyingKey(
            pem: pair.publicKeyPEM, for: .rs256, setting: "simulated service account")
        let email = "\(name)@\(projectID).iam.gserviceaccount.com"
        facts.addServiceAccount(email: email, key, projects: others.union([projectID]))
        let json = ByteWriter(capacity: 4096)
        json.append("{\"type\":\"service_account\",\"project_id\":")
        json.append(jsonString: projectID)
        json.append(",\"private_key_id\":\"0123456789abcdef\",\"private_key\":")
        json.append(jsonString: pair.privateKeyPEM)
        json.append(",\"client_email\":")
        json.append(jsonString: email)
        json.append(",\"token_uri\":")
        json.append(jsonString: tokenURI)
        json.append("}")
        return SimulatedServiceAccount(email: email, projectID: projectID, json: json.text)
    }
}
