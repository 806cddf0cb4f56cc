// One request over a connection of its own: for what is asked rarely and away from the lanes.

internal import Base
internal import Crypto
internal import EventLoop
internal import Gateways
internal import HTTP2

/// Why a call has no answer.
internal struct CallFault: Error {
    let text: String
}

/// One request and its answer. Loop-confined; it has to be kept until it has told.
internal final class SingleCall: HTTP2PoolDelegate {
    private let loop: EventLoop
    private var pool: HTTP2Pool?
    private var done: ((Result<GatewayAnswer, CallFault>) -> Void)?

    /// Makes the call; `done` is called once, perhaps within this call.
    init(
        to endpoint: GatewayEndpoint, _ policy: PoolPolicy, _ access: GatewayAccess,
        _ loop: EventLoop, identity: TLSContext.Identity? = nil,
        _ write: (OutboundRequest) -> Void,
        done: @escaping (Result<GatewayAnswer, CallFault>) -> Void
    ) {
        self.loop = loop
        self.done = done
        do throws(TLSError) {
            let tls = try TLSContext.client(
                trusting: endpoint.authorities, alpn: ["h2"], identity: identity)
            var policy = policy
            policy.egress = access.egress
            let pool = HTTP2Pool(loop: loop, origin: Origin(endpoint), tls: tls, policy: policy)
            let request = OutboundRequest()
            write(request)
            self.pool = pool
            pool.delegate = self
            pool.submit(request, tag: 0, deadline: loop.now + CredentialProver.patience / 2)
        } catch {
            finish(.failure(CallFault(text: error.description)))
        }
    }

    /// Whether it has told, or was given up.
    var isOver: Bool { done == nil }

    /// Gives the call up; nothing is told.
    func cancel() {
        done = nil
        closePool()
    }

    func pool(_ pool: HTTP2Pool, mayWrite tag: UInt64) -> Bool { true }

    func pool(
        _ pool: HTTP2Pool, finished tag: UInt64, _ request: OutboundRequest, _ result: HTTPResult
    ) {
        switch result {
        case .response(let response):
            finish(
                .success(
                    GatewayAnswer(
                        status: response.status, body: response.body,
                        retryAfter: response.text(.retryAfter), date: response.text(.date),
                        now: loop.wall)))
        case .notProcessed(let fault), .ambiguous(let fault, _):
            finish(.failure(CallFault(text: "\(fault)")))
        case .withdrawn: finish(.failure(CallFault(text: "withdrawn")))
        }
    }

    /// Whoever wants to know tries again: what cannot be reached is said at once.
    func poolAlarm(_ pool: HTTP2Pool, _ alarm: PoolAlarm) {
        switch alarm {
        case .unreachable(let text, _): finish(.failure(CallFault(text: text)))
        case .tlsFailed(let text): finish(.failure(CallFault(text: "TLS failed: \(text)")))
        case .http2NotNegotiated:
            finish(
                .failure(
                    CallFault(
                        text: "it does not speak HTTP/2: most often a proxy that intercepts TLS")))
        default: break
        }
    }

    private func finish(_ result: Result<GatewayAnswer, CallFault>) {
        let done = self.done
        self.done = nil
        closePool()
        done?(result)
    }

    /// Not from inside the connection that hands an answer over.
    private func closePool() {
        guard let pool else { return }
        self.pool = nil
        pool.delegate = nil
        let timer = LoopTimer { pool.close() }
        loop.schedule(timer, at: loop.now)
    }
}
