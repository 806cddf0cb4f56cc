// The push gateways as servers of our own: APNs in both environments, FCM and its token endpoint,
// the push services of browsers and Expo, each over real TLS and HTTP/2 on a loopback port, with the
// documented rules, scripted faults and a record of what they received.

internal import Base
internal import Crypto
public import EventLoop
internal import Glibc
public import HTTP2
internal import Synchronization

/// Why a simulator could not be started.
public enum SimulatorError: Error, CustomStringConvertible {
    /// No certificate authority or certificate could be made.
    case certificates(String)
    /// A service could not listen.
    case listen(SimulatedService, String)
    /// A thread could not be started.
    case thread(SystemError)
    /// The file of the authority's certificate could not be written.
    case file(String, SystemError)

    /// What failed, in words.
    public var description: String {
        switch self {
        case .certificates(let text): "no certificates for the simulated gateways: \(text)"
        case .listen(let service, let text): "\(service.rawValue) cannot be simulated: \(text)"
        case .thread(let error): "no thread for the simulated gateways: \(error)"
        case .file(let path, let error): "\(path) cannot be written: \(error)"
        }
    }
}

/// A running set of simulated gateways. Safe on any thread.
public final class Simulator: Sendable {
    /// What the gateways know: teams, keys, projects, accounts, tokens.
    public let facts: GatewayFacts

    /// What they received.
    public let journal: Journal

    /// The certificate of the private authority that clients have to trust, as PEM.
    public let authorityPEM: String

    private let services: [SimulatedService: RunningService]
    private let threads: [LoopThread]
    private let engine: FaultEngine
    private let accessTokens: AccessTokens
    private let time: any TimeSource
    private let isStopped = Mutex(false)
    /// Issues push certificates.
    internal let pushCertificates: Mutex<CertificateAuthority>

    /// Starts the services; returns when all of them listen.
    public init(_ options: SimulatorOptions = SimulatorOptions()) throws(SimulatorError) {
        let facts = GatewayFacts(
            unknownTokens: options.unknownTokens, unknownCredentials: options.unknownCredentials)
        let journal = Journal(options.journal)
        let engine = FaultEngine(options.faults, at: options.time.monotonic)
        let accessTokens = AccessTokens(seed: UInt64.random(in: .min ... .max))
        let identity = try ServerIdentity(hosts: options.certificateHosts)
        let issuer: CertificateAuthority
        do throws(TLSError) {
            issuer = try CertificateAuthority()
        } catch { throw .certificates("\(error)") }
        let assembly = ServiceAssembly(
            options: options, facts: facts, journal: journal, engine: engine,
            accessTokens: accessTokens, identity: identity,
            clientAuthorityPEM: issuer.certificatePEM)
        pushCertificates = Mutex(issuer)
        (threads, services) = try assembly.start()
        authorityPEM = identity.authorityPEM
        time = options.time
        self.facts = facts
        self.journal = journal
        self.engine = engine
        self.accessTokens = accessTokens
    }

    /// The port a service listens on.
    public func port(of service: SimulatedService) -> UInt16 { services[service]?.port ?? 0 }

    /// The address of the token endpoint, as a service account names it.
    public var tokenURI: String { "https://localhost:\(port(of: .oauth))/token" }

    /// Writes the authority's certificate to a file, for clients that take a path.
    public func writeAuthority(to path: String) throws(SimulatorError) {
        guard let file = fopen(path, "w") else {
            throw .file(path, SystemError("fopen", errno: errno))
        }
        let written = fputs(authorityPEM, file)
        guard fclose(file) == 0, written >= 0 else {
            throw .file(path, SystemError("write", errno: errno))
        }
    }

    /// The fault plan in force.
    public var faults: FaultPlan { engine.plan }

    /// Puts another fault plan into force; its counts start from zero.
    public func setFaults(_ plan: FaultPlan) { engine.replace(plan, at: time.monotonic) }

    /// Makes every access token issued so far expire at once.
    public func revokeAccessTokens() { accessTokens.revokeAll() }

    /// Runs an order on every open connection of a service, on its thread, and returns when that
    /// is done. Not to be called from a service's thread.
    public func onConnections(
        of service: SimulatedService, _ order: @escaping @Sendable (ServerConnection) -> Void
    ) {
        guard let running = services[service] else { return }
        let done = Semaphore()
        running.handle.submit {
            let connections = running.server.listener?.connections ?? [:]
            for number in connections.keys.sorted() { connections[number].map(order) }
            done.signal()
        }
        _ = done.wait(upTo: .seconds(10))
    }

    /// Lets the services notice that their clock was moved by hand.
    public func wake() {
        for thread in threads { thread.handle.wake() }
    }

    /// Cuts all connections and stops; a second call does nothing.
    public func stop() {
        let isFirst = isStopped.withLock { isStopped in
            defer { isStopped = true }
            return !isStopped
        }
        guard isFirst else { return }
        for service in services.values {
            service.handle.submit { service.server.close() }
        }
        for thread in threads { thread.handle.stop() }
        for thread in threads { thread.join() }
    }
}

/// A service and the loop it is confined to.
///
/// `@unchecked Sendable`: `server` is touched in jobs submitted to `handle` only, that is on its
/// loop's thread.
struct RunningService: @unchecked Sendable {
    let server: GatewayServer
    let handle: LoopHandle
    let port: UInt16
}

/// A private authority and the one certificate that all services show.
struct ServerIdentity: Sendable {
    let authorityPEM: String
    let certificatePEM: String
    let keyPEM: String

    init(hosts: [String]) throws(SimulatorError) {
        let names =
            ["localhost", "127.0.0.1", "api.push.apple.com", "api.sandbox.push.apple.com"]
            + ["api-manage-broadcast.push.apple.com"]
            + ["api-manage-broadcast.sandbox.push.apple.com"] + [
                "fcm.googleapis.com", "oauth2.googleapis.com", "exp.host",
            ] + PushServiceFamily.hosts
            + hosts
        do {
            let authority = try CertificateAuthority()
            (certificatePEM, keyPEM) = try authority.issue(hosts: names)
            authorityPEM = authority.certificatePEM
        } catch { throw SimulatorError.certificates("\(error)") }
    }
}
