internal import Base
internal import Crypto
internal import EventLoop
internal import HTTP2
internal import Synchronization

/// One request to a gateway from the command line, answered before the call returns.
internal enum GatewayCall {
    /// What came back.
    struct Answer: Sendable {
        var status: Int
        var body: [UInt8]
        /// `apns-channel-id`.
        var channelID: String?
    }

    /// Sends a request; throws what a person can do something about.
    static func send(
        _ fields: [(StaticString, String)], body: String, to origin: Origin, tls: TLSContext,
        _ egress: Egress
    ) throws(Failure) -> Answer {
        let outcome = Outcome()
        let thread: LoopThread
        do throws(SystemError) {
            thread = try LoopThread.start(name: "call") { loop in
                let request = OutboundRequest()
                for (name, value) in fields { request.add(name, value, .neverIndexed) }
                request.body.append(body)
                let call = Call(loop, origin, tls, egress, outcome)
                call.pool.submit(request, tag: 0, deadline: loop.now + patience)
            }
        } catch {
            throw .failed("no thread for a request: \(error)")
        }
        outcome.isDone.wait()
        thread.handle.stop()
        thread.join()
        switch outcome.result.withLock({ $0 }) {
        case .success(let answer): return answer
        case .failure(let fault): throw .failed("\(origin.host): \(fault.text)")
        }
    }

    /// From the call to the request's writing.
    private static let patience = TimeSpan.seconds(15)

    private struct Fault: Error {
        var text: String
    }

    /// What the loop's thread leaves for the caller's.
    private final class Outcome: Sendable {
        let result = Mutex<Result<Answer, Fault>>(.failure(Fault(text: "no answer")))
        let isDone = Semaphore()
    }

    /// The owner of a pool for one request. It keeps itself until the answer is there.
    private final class Call: HTTP2PoolDelegate {
        let pool: HTTP2Pool
        private let outcome: Outcome
        private var trouble: String?

        init(
            _ loop: EventLoop, _ origin: Origin, _ tls: TLSContext, _ egress: Egress,
            _ outcome: Outcome
        ) {
            var policy = PoolPolicy.apns(connectionsMin: 1, connectionsMax: 1)
            policy.egress = egress
            pool = HTTP2Pool(loop: loop, origin: origin, tls: tls, policy: policy)
            self.outcome = outcome
            pool.delegate = self
        }

        func pool(_ pool: HTTP2Pool, mayWrite tag: UInt64) -> Bool { true }

        func pool(
            _ pool: HTTP2Pool, finished tag: UInt64, _ request: OutboundRequest,
            _ result: HTTPResult
        ) {
            let told: Result<Answer, Fault> =
                switch result {
                case .response(let response):
                    .success(
                        Answer(
                            status: response.status, body: Array(response.body),
                            channelID: response.text(.apnsChannelID)))
                case .notProcessed(let fault): .failure(Fault(text: trouble ?? "\(fault)"))
                case .ambiguous(let fault, _):
                    .failure(Fault(text: "the answer was lost: \(fault)"))
                case .withdrawn: .failure(Fault(text: "withdrawn"))
                }
            outcome.result.withLock { $0 = told }
            pool.delegate = nil
            pool.close()
            outcome.isDone.signal()
        }

        func poolAlarm(_ pool: HTTP2Pool, _ alarm: PoolAlarm) {
            switch alarm {
            case .unreachable(let text, _): trouble = text
            case .tlsFailed(let text): trouble = text
            case .http2NotNegotiated: trouble = "it does not speak HTTP/2"
            default: break
            }
        }
    }
}
