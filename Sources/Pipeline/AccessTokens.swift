// FCM's access tokens as one lane uses them. The credential is the process's; whoever is told to
// fetch makes the call from its own loop, and every lane hears of the answer.

internal import Base
internal import EventLoop
internal import Gateways
internal import HTTP2
internal import Synchronization

/// One service account's credential and the lanes that wait for its tokens.
internal final class AccessTokenService: Sendable {
    let credential: OAuthCredential
    private let listeners = Mutex<[ObjectIdentifier: @Sendable () -> Void]>([:])

    init(_ credential: OAuthCredential) { self.credential = credential }

    /// Calls `listener` from any thread whenever an answer was taken in, for a subscriber that ends
    /// its subscription before it goes.
    func subscribe(_ subscriber: AccessTokens, _ listener: @escaping @Sendable () -> Void) {
        listeners.withLock { $0[ObjectIdentifier(subscriber)] = listener }
    }

    func unsubscribe(_ subscriber: AccessTokens) {
        listeners.withLock { $0[ObjectIdentifier(subscriber)] = nil }
    }

    func announce() {
        for listener in listeners.withLock({ Array($0.values) }) { listener() }
    }
}

/// What a target that needs a token can do now.
internal enum AccessTokenAnswer {
    case use(AccessToken)
    /// No token yet; `AccessTokens.onChange` says when to ask again.
    case wait
    /// There will be none until somebody repairs the credential.
    case unavailable(CredentialFault)
}

/// A lane's access to the tokens of one service account. Loop-confined.
internal final class AccessTokens: HTTP2PoolDelegate {
    /// Called when it is worth asking again.
    var onChange: (() -> Void)?

    private let service: AccessTokenService
    private let loop: EventLoop
    private let pool: HTTP2Pool
    /// Calls of the token endpoint that were not answered yet.
    private(set) var fetchesOpen = 0
    /// Whether another credential serves in its place; it only waits for its last answer.
    private(set) var isRetired = false
    private lazy var timer = LoopTimer { [unowned self] in onChange?() }

    init(_ service: AccessTokenService, loop: EventLoop, pool: HTTP2Pool) {
        self.service = service
        self.loop = loop
        self.pool = pool
        pool.delegate = self
    }

    /// The token to send with, as far as there is one.
    func token() -> AccessTokenAnswer {
        switch service.credential.next(at: loop.now, wall: loop.wall) {
        case .use(let token): return .use(token)
        case .fetch(let fetch, let meanwhile):
            start(fetch)
            return meanwhile.map { .use($0) } ?? .wait
        case .wait(let time):
            if let fault = service.credential.fault, fault.fault != .none {
                return .unavailable(fault)
            }
            if !timer.isScheduled { loop.schedule(timer, at: time) }
            return .wait
        }
    }

    /// Takes note that FCM refused the token of that generation.
    func refuse(_ generation: UInt64) { service.credential.refuse(generation, at: loop.now) }

    /// Nobody asks any more. An answer that is under way is still taken in: others may share the
    /// account.
    func retire() {
        isRetired = true
        loop.cancel(timer)
        onChange = nil
    }

    func close() {
        service.unsubscribe(self)
        loop.cancel(timer)
        onChange = nil
        pool.delegate = nil
        pool.close()
    }

    private func start(_ fetch: TokenFetch) {
        let endpoint = service.credential.account.tokenEndpoint
        let request = OutboundRequest()
        Self.write(fetch, to: endpoint, into: request)
        fetchesOpen += 1
        pool.submit(request, tag: fetch.number, deadline: loop.now + Self.fetchDeadline)
    }

    /// Writes the call of a token endpoint.
    static func write(
        _ fetch: TokenFetch, to endpoint: TokenEndpoint, into request: OutboundRequest
    ) {
        writeHead(to: endpoint, into: request)
        request.body.append(fetch.body)
    }

    /// The same without what it asks for.
    static func writeHead(to endpoint: TokenEndpoint, into request: OutboundRequest) {
        request.add(":method", "POST")
        request.add(":scheme", "https")
        request.add(
            ":authority", Origin(host: endpoint.host, port: endpoint.port).authority)
        request.add(":path", endpoint.path)
        request.add("content-type", "application/x-www-form-urlencoded")
        request.add("accept", "application/json")
    }

    func pool(_ pool: HTTP2Pool, mayWrite tag: UInt64) -> Bool { true }

    func pool(
        _ pool: HTTP2Pool, finished tag: UInt64, _ request: OutboundRequest, _ result: HTTPResult
    ) {
        fetchesOpen -= 1
        switch result {
        case .response(let response):
            let answer = GatewayAnswer(
                status: response.status, body: response.body,
                retryAfter: response.text(.retryAfter), date: response.text(.date), now: loop.wall)
            service.credential.received(answer, for: tag, at: loop.now)
        case .notProcessed(let fault), .ambiguous(let fault, _):
            service.credential.failed(tag, detail: "\(fault)", at: loop.now)
        case .withdrawn:
            service.credential.failed(tag, detail: "withdrawn", at: loop.now)
        }
        service.announce()
    }

    func poolAlarm(_ pool: HTTP2Pool, _ alarm: PoolAlarm) {}

    /// How long a call may wait to be written; an answer has the pool's request time-out.
    private static let fetchDeadline = TimeSpan.seconds(10)
}
