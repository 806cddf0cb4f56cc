// The trials of one credential, one environment after the other: token first where there is one to
// be fetched, then the request that carries it.

internal import Base
internal import Crypto
internal import EventLoop
internal import Gateways
internal import HTTP2

/// Tries a credential in all environments of a gateway. Loop-confined; what it started keeps it.
internal final class ProofSeries {
    private let app: PushApp
    private let gateway: Gateway
    private let loop: EventLoop
    private let access: GatewayAccess
    private let done: @Sendable ([CredentialTrial]) -> Void
    private var environments: ArraySlice<GatewayEnvironment>
    private var trials: [CredentialTrial] = []
    private var call: SingleCall?
    /// Whether the token endpoint answered.
    private var hasReachedTokens = false

    init(
        _ app: PushApp, _ gateway: Gateway, _ access: GatewayAccess, _ loop: EventLoop,
        _ done: @escaping @Sendable ([CredentialTrial]) -> Void
    ) {
        self.app = app
        self.gateway = gateway
        self.loop = loop
        self.access = access
        self.done = done
        environments = gateway == .apns ? [.production, .sandbox] : [.none]
    }

    /// Tries the next environment, or tells.
    func next() {
        guard let environment = environments.popFirst() else { return done(trials) }
        switch gateway {
        case .apns: tryAPNs(environment)
        case .fcm: fetchToken(until: loop.now + CredentialProver.patience)
        case .expo: tryExpo()
        case .webpush:
            tell(app.webPush.map { CredentialProof.tryVAPID($0.credential) } ?? notConfigured)
        }
    }

    private var notConfigured: CredentialVerdict { .refused(.config, "it is not configured") }

    private func tell(
        _ verdict: CredentialVerdict, _ environment: GatewayEnvironment = .none,
        clockAhead: TimeSpan? = nil
    ) {
        trials.append(
            CredentialTrial(environment: environment, verdict: verdict, clockAhead: clockAhead))
        next()
    }

    // MARK: APNs and Expo

    private func tryAPNs(_ environment: GatewayEnvironment) {
        if let apns = app.certificateAPNs { return tryCertificate(apns, environment) }
        guard let apns = app.apns else { return tell(notConfigured, environment) }
        let endpoint = environment == .production ? apns.production : apns.sandbox
        let token: ProviderToken
        do throws(OpenSSLError) {
            token = try apns.credential.token(at: loop.now, wall: loop.wall)
        } catch {
            return tell(.refused(.credential, "it cannot sign: \(error)"), environment)
        }
        send(to: endpoint, .apns(connectionsMin: 1, connectionsMax: 1), environment) { request in
            CredentialProof.writeAPNs(
                topic: apns.topic, authority: Origin(endpoint).authority, token: token,
                into: request)
        } judge: {
            CredentialProof.judgeAPNs($0, topic: apns.topic)
        }
    }

    /// The handshake shows who asks; the request is the same.
    private func tryCertificate(
        _ apns: PushApp.CertificateAPNs, _ environment: GatewayEnvironment
    ) {
        let endpoint = environment == .production ? apns.production : apns.sandbox
        send(
            to: endpoint, .apns(connectionsMin: 1, connectionsMax: 1), environment,
            identity: apns.identity
        ) { request in
            CredentialProof.writeAPNs(
                topic: apns.topic, authority: Origin(endpoint).authority, token: nil, into: request)
        } judge: {
            CredentialProof.judgeAPNs($0, topic: apns.topic)
        }
    }

    private func tryExpo() {
        guard let expo = app.expo else { return tell(notConfigured) }
        send(to: expo.endpoint, .expo(), .none) { request in
            CredentialProof.writeExpo(
                expo.credential, authority: Origin(expo.endpoint).authority, into: request)
        } judge: {
            CredentialProof.judgeExpo($0)
        }
    }

    // MARK: FCM

    /// Has the credential's token fetched, by this call or by whoever fetches it already.
    private func fetchToken(until deadline: MonotonicTime) {
        guard let fcm = app.fcm else { return tell(notConfigured) }
        let credential = fcm.tokens.credential
        switch credential.next(at: loop.now, wall: loop.wall) {
        case .use(let token): hasReachedTokens ? trySend(fcm, token) : reachTokens(fcm, token)
        case .fetch(let fetch, _): post(fetch, fcm, until: deadline)
        case .wait(let time):
            if let fault = credential.fault, fault.fault != .none {
                return tell(.refused(fault.fault, fault.explanation))
            }
            guard time < deadline else {
                return tell(
                    .unclear(credential.fault?.explanation ?? "the token endpoint did not answer"))
            }
            let timer = LoopTimer { [self] in fetchToken(until: deadline) }
            loop.schedule(timer, at: max(time, loop.now + .milliseconds(20)))
        }
    }

    private func post(
        _ fetch: TokenFetch, _ fcm: PushApp.FCM, until deadline: MonotonicTime
    ) {
        let credential = fcm.tokens.credential
        let endpoint = credential.account.tokenEndpoint
        let place = GatewayEndpoint(
            host: endpoint.host, port: endpoint.port, trusting: fcm.endpoint.authorities)
        call(place, .fcm(connectionsMin: 1, connectionsMax: 1)) { request in
            AccessTokens.write(fetch, to: endpoint, into: request)
        } done: { [self] answer in
            switch answer {
            case .success(let answer):
                hasReachedTokens = true
                credential.received(answer, for: fetch.number, at: loop.now)
            case .failure(let fault):
                credential.failed(fetch.number, detail: fault.text, at: loop.now)
            }
            fcm.tokens.announce()
            if let fault = credential.fault {
                return tell(
                    fault.fault == .none
                        ? .unclear(fault.explanation) : .refused(fault.fault, fault.explanation),
                    clockAhead: try? answer.get().clockAhead)
            }
            fetchToken(until: deadline)
        }
    }

    /// A token that is there says nothing about the way to the next one: what the endpoint answers
    /// to an empty request is no matter, that it is trusted is.
    private func reachTokens(_ fcm: PushApp.FCM, _ token: AccessToken) {
        let endpoint = fcm.tokens.credential.account.tokenEndpoint
        let place = GatewayEndpoint(
            host: endpoint.host, port: endpoint.port, trusting: fcm.endpoint.authorities)
        call(place, .fcm(connectionsMin: 1, connectionsMax: 1)) { request in
            AccessTokens.writeHead(to: endpoint, into: request)
        } done: { [self] answer in
            switch answer {
            case .success:
                hasReachedTokens = true
                trySend(fcm, token)
            case .failure(let fault):
                tell(.unclear("the token endpoint \(Origin(place)): \(fault.text)"))
            }
        }
    }

    private func trySend(_ fcm: PushApp.FCM, _ token: AccessToken) {
        let account = fcm.tokens.credential.account.clientEmail
        send(to: fcm.endpoint, .fcm(connectionsMin: 1, connectionsMax: 1), .none) { request in
            CredentialProof.writeFCM(
                projectID: fcm.projectID, authority: Origin(fcm.endpoint).authority, token: token,
                into: request)
        } judge: {
            CredentialProof.judgeFCM($0, projectID: fcm.projectID, account: account)
        }
    }

    // MARK: Calls

    private func send(
        to endpoint: GatewayEndpoint, _ policy: PoolPolicy, _ environment: GatewayEnvironment,
        identity: TLSContext.Identity? = nil, write: (OutboundRequest) -> Void,
        judge: @escaping (GatewayAnswer) -> CredentialVerdict
    ) {
        call(endpoint, policy, identity: identity, write) { [self] answer in
            switch answer {
            case .success(let answer):
                tell(judge(answer), environment, clockAhead: answer.clockAhead)
            case .failure(let fault):
                tell(.unclear("\(Origin(endpoint)): \(fault.text)"), environment)
            }
        }
    }

    private func call(
        _ endpoint: GatewayEndpoint, _ policy: PoolPolicy, identity: TLSContext.Identity? = nil,
        _ write: (OutboundRequest) -> Void,
        done: @escaping (Result<GatewayAnswer, CallFault>) -> Void
    ) {
        call = SingleCall(
            to: endpoint, policy, access, loop, identity: identity, write, done: done)
    }
}
