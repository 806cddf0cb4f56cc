import Base
import EventLoop
import HTTP2
import Testing

/// A server that does anything a gateway was seen to do, drawn from a seed, and keeps its own books
/// about what it has processed.
@Suite struct `Under random faults` {
    @Test(arguments: 0..<12 as Range<UInt64>)
    func `every request has one result, and none is processed twice`(seed: UInt64) throws {
        var policy = PoolPolicy.apns(connectionsMin: 2, connectionsMax: 3)
        policy.calmDelay = .seconds(2)
        let stage = try Stage(policy, ServerOptions(streams: 8))
        var random = SeededRandom(seed: seed)
        let chaos = Chaos(random: random.next())
        stage.listener.acceptance = { _ in chaos.acceptance() }
        stage.onRequest = { chaos.received($0, on: $1) }
        let count: UInt64 = 300
        var submitted: UInt64 = 0
        for _ in 0..<600 where stage.finished.count < count {
            while submitted < count, stage.pool.queued < 20 {
                submitted += 1
                stage.submit(
                    submitted, bodyBytes: Int.random(in: 0..<9000, using: &random),
                    deadline: stage.loop.now + .hours(1))
            }
            stage.advance(
                by: random.span(upTo: .seconds(2)), step: .milliseconds(700))
        }
        chaos.isCalm = true
        stage.advance(by: .minutes(3), step: .seconds(2))
        #expect(stage.finish(1...count), "seed \(seed): \(stage.finished.count) of \(count)")
        #expect(stage.repeated.isEmpty, "seed \(seed)")
        #expect(stage.pool.inFlight == 0 && stage.pool.queued == 0, "seed \(seed)")
        for tag in 1...count {
            let processed = chaos.processed["/\(tag)", default: 0]
            switch stage.outcomes[tag] {
            case .response: #expect(processed == 1, "seed \(seed), request \(tag)")
            case .ambiguous: #expect(processed <= 1, "seed \(seed), request \(tag)")
            default: #expect(processed == 0, "seed \(seed), request \(tag)")
            }
        }
        let breaches = stage.notices.filter {
            switch $0.event {
            case .streamLimitViolated, .protocolViolated: true
            default: false
            }
        }
        #expect(breaches.isEmpty, "seed \(seed): \(breaches)")
    }
}

private final class Chaos {
    var isCalm = false
    private(set) var processed: [String: Int] = [:]
    private var random: SeededRandom
    /// The highest stream that was processed, by connection.
    private var lastProcessed: [Int: Int32] = [:]
    /// The last stream id of a GOAWAY, by connection.
    private var goneAbove: [Int: Int32] = [:]

    init(random seed: UInt64) { random = SeededRandom(seed: seed) }

    func acceptance() -> Acceptance {
        if isCalm { return .serve }
        switch Int.random(in: 0..<10, using: &random) {
        case 0: return .reset
        case 1: return .breakTLS
        default: return .serve
        }
    }

    func received(_ request: ServerRequest, on connection: ServerConnection) {
        let path = request.text(":path") ?? ""
        let stream = request.stream
        if stream > goneAbove[connection.number, default: .max] { return }
        if isCalm { return answer(path, stream, connection, after: .zero) }
        switch Int.random(in: 0..<100, using: &random) {
        case 0..<60: answer(path, stream, connection, after: .zero)
        case 60..<75:
            answer(path, stream, connection, after: random.span(upTo: .seconds(3)))
        case 75..<83: connection.reset(stream, codes: [7, 5])
        case 83..<86:
            process(path, stream, connection)
            connection.reset(stream, codes: [8])
        case 86..<88:
            process(path, stream, connection)
            connection.cut()
        case 88..<90:
            process(path, stream, connection)
            connection.close()
        case 90..<93:
            // What was processed so far is, this one is not, unless it is an old one.
            let last = lastProcessed[connection.number, default: 0]
            if stream < last { return answer(path, stream, connection, after: .zero) }
            let code: UInt32 = Bool.random(using: &random) ? 0 : 0xb
            connection.goAway(lastStream: last, code: code)
            goneAbove[connection.number] = last
        case 93..<95:
            answer(path, stream, connection, after: .zero)
            connection.goAway()
        case 95..<98:
            let limit = UInt32.random(in: 1...8, using: &random)
            connection.change(SettingsChange(maxConcurrentStreams: limit))
            answer(path, stream, connection, after: .zero)
        case 98..<99:
            process(path, stream, connection)
            connection.playDead()
        default:
            process(path, stream, connection)
        }
    }

    private func process(_ path: String, _ stream: Int32, _ connection: ServerConnection) {
        processed[path, default: 0] += 1
        lastProcessed[connection.number] = max(lastProcessed[connection.number, default: 0], stream)
    }

    private func answer(
        _ path: String, _ stream: Int32, _ connection: ServerConnection, after delay: TimeSpan
    ) {
        process(path, stream, connection)
        connection.respond(ServerResponse(status: 200), on: stream, after: delay)
    }
}
