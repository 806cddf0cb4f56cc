// A pool that must not be led into the network around it.

import Base
import Crypto
import EventLoop
import HTTP2
import Testing

@Suite struct `A pool for hosts that others chose` {
    private final class Owner: HTTP2PoolDelegate {
        var results: [HTTPResult] = []
        var alarms = 0
        func pool(_ pool: HTTP2Pool, mayWrite tag: UInt64) -> Bool { true }
        func pool(
            _ pool: HTTP2Pool, finished tag: UInt64, _ request: OutboundRequest,
            _ result: HTTPResult
        ) { results.append(result) }
        func poolAlarm(_ pool: HTTP2Pool, _ alarm: PoolAlarm) { alarms += 1 }
    }

    @Test(arguments: ["localhost", "push.localhost", "127.0.0.1", "::1"])
    func `hands back what leads to this machine, without a connection`(host: String) throws {
        let listener = try ListeningSocket.open(host: "127.0.0.1", port: 0)
        defer { SocketIO.close(listener.fd) }
        let loop = try EventLoop(name: "reach")
        let owner = Owner()
        let pool = HTTP2Pool(
            loop: loop, origin: Origin(host: host, port: listener.port),
            tls: try TLSContext.client(caFile: nil, alpn: ["h2"]), policy: .webPush())
        pool.delegate = owner
        for tag in 0..<3 as Range<UInt64> {
            pool.submit(OutboundRequest(), tag: tag, deadline: loop.now + .seconds(60))
        }
        let deadline = SystemTime.shared.monotonic + .seconds(30)
        while owner.results.count < 3, SystemTime.shared.monotonic < deadline {
            loop.turn(waitingUpTo: .milliseconds(100))
        }
        #expect(owner.results.count == 3 && owner.alarms > 0)
        for result in owner.results {
            guard case .notProcessed(.forbiddenAddress) = result else {
                Issue.record("\(result)")
                continue
            }
        }
        #expect(ListeningSocket.accept(listener.fd) == nil)
        pool.delegate = nil
        pool.close()
    }
}
