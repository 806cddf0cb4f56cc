import Base
import EventLoop
import HTTP2
import Testing

@Suite struct `A pool of connections` {
    @Test func `never exceeds a limit that goes from one to many, to one, to none and back`() throws
    {
        let stage = try Stage(.single, ServerOptions(streams: 1))
        stage.onRequest = { request, connection in
            connection.respond(ServerResponse(status: 200), on: request.stream, after: .seconds(1))
        }
        for tag in 1...400 { stage.submit(UInt64(tag)) }
        for limit: UInt32 in [100, 1, 0, 7, 0, 100] {
            stage.advance(by: .seconds(3), step: .milliseconds(500))
            stage.connections[1]?.change(SettingsChange(maxConcurrentStreams: limit))
        }
        stage.advance(by: .seconds(8), step: .milliseconds(500))
        #expect(stage.finish(1...400))
        #expect(stage.outcomes.values.allSatisfy { $0 == .accepted })
        #expect(!stage.sawBreach)
        #expect(stage.connections.count == 1)
    }

    @Test func `a graceful shutdown in two steps loses nothing and is replaced at once`() throws {
        let stage = try Stage(.single)
        stage.onRequest = { request, connection in
            if connection.number > 1 {
                connection.respond(ServerResponse(status: 200), on: request.stream)
            }
        }
        for tag in 1...6 { stage.submit(UInt64(tag)) }
        #expect(stage.run { stage.arrivals.count == 6 })
        stage.connections[1]?.goAway()
        stage.settle()
        for tag in 7...9 { stage.submit(UInt64(tag)) }
        // No time has passed: what is new does not wait for what the old connection still owes.
        #expect(stage.run { stage.paths(on: 2) == ["/7", "/8", "/9"] })
        stage.connections[1]?.goAway(lastStream: 7)
        for stream: Int32 in [1, 3, 5, 7] {
            stage.connections[1]?.respond(ServerResponse(status: 200), on: stream)
        }
        stage.advance(by: .seconds(2))
        #expect(stage.finish(1...9))
        #expect(stage.paths(on: 2) == ["/7", "/8", "/9", "/5", "/6"])
        #expect(stage.outcomes.values.allSatisfy { $0 == .accepted })
        #expect(stage.run { stage.connections[1]?.isClosed == true })
        #expect(!stage.sawBreach)
    }

    @Test func `an idle connection that is told to go is closed`() throws {
        let stage = try Stage(.single)
        stage.submit(1)
        #expect(stage.finish([1]))
        stage.connections[1]?.goAway(debug: #"{"reason":"IdleTimeout"}"#)
        #expect(stage.run { stage.connections[1]?.isClosed == true })
        #expect(stage.pool.connectionCount == 0)
        guard case .goAway(.noError, "IdleTimeout") = stage.alarms.last else {
            Issue.record("\(stage.alarms)")
            return
        }
    }

    @Test(arguments: [UInt32(8), 2, 1, 5, 0xb, 0])
    func `a reset other than REFUSED_STREAM is ambiguous and not repeated`(code: UInt32) throws {
        let stage = try Stage(.single)
        stage.onRequest = { $1.reset($0.stream, codes: [code]) }
        stage.submit(1)
        #expect(stage.finish([1]))
        #expect(stage.outcomes[1] == .ambiguous(.reset(ErrorCode(code))))
        stage.advance(by: .seconds(5))
        #expect(stage.arrivals.count == 1)
    }

    @Test func `HTTP_1_1_REQUIRED is not processed`() throws {
        let stage = try Stage(.single)
        stage.onRequest = { $1.reset($0.stream, codes: [0xd]) }
        stage.submit(1)
        #expect(stage.finish([1]))
        #expect(stage.outcomes[1] == .notProcessed(.http11Required))
    }

    @Test func `a refused stream comes again within 50 to 200 milliseconds, in order`() throws {
        let stage = try Stage(.single)
        var refused = 0
        stage.onRequest = { request, connection in
            if refused < 3 {
                refused += 1
                connection.reset(request.stream, codes: [7])
            } else {
                connection.respond(ServerResponse(status: 200), on: request.stream)
            }
        }
        for tag in 1...3 { stage.submit(UInt64(tag)) }
        #expect(stage.run { refused == 3 })
        stage.settle()
        stage.advance(by: .milliseconds(49), step: .milliseconds(49))
        #expect(stage.outcomes.isEmpty && stage.pool.queued == 3)
        stage.advance(by: .milliseconds(155), step: .milliseconds(31))
        #expect(stage.finish(1...3))
        #expect(stage.finished == [1, 2, 3])
        #expect(stage.pool.statistics.resends == 3)
    }

    @Test func `a stream that is refused for ever is given back in the end`() throws {
        let stage = try Stage(.single)
        stage.onRequest = { $1.reset($0.stream, codes: [7]) }
        stage.submit(1)
        stage.advance(by: .seconds(5), step: .milliseconds(100))
        #expect(stage.finish([1]))
        #expect(stage.outcomes[1] == .notProcessed(.refused))
        #expect(stage.arrivals.count == 1 + Limits.resendsMax)
    }

    @Test func `a cut connection makes what was written ambiguous, the rest goes on`() throws {
        let stage = try Stage(.single, ServerOptions(streams: 3))
        stage.onRequest = { request, connection in
            if connection.number > 1 {
                connection.respond(ServerResponse(status: 200), on: request.stream)
            } else if request.stream == 5 {
                connection.cut()
            }
        }
        for tag in 1...6 { stage.submit(UInt64(tag)) }
        #expect(stage.finish(1...3))
        stage.advance(by: .seconds(3))
        #expect(stage.finish(1...6))
        for tag: UInt64 in 1...3 {
            #expect(stage.outcomes[tag] == .ambiguous(.connectionLost))
        }
        #expect(stage.paths(on: 2) == ["/4", "/5", "/6"])
        #expect(
            stage.alarms.contains {
                if case .connectionLost(.connectionLost, inFlight: 3) = $0 { true } else { false }
            })
    }

    @Test func `421 is repeated on a fresh connection`() throws {
        let stage = try Stage(.single)
        stage.onRequest = { request, connection in
            connection.respond(
                ServerResponse(status: connection.number == 1 ? 421 : 200), on: request.stream)
        }
        stage.submit(1)
        stage.advance(by: .seconds(2))
        #expect(stage.finish([1]))
        #expect(stage.outcomes[1] == .accepted)
        #expect(stage.arrivals.map(\.connection) == [1, 2])
    }

    @Test func `an exhausted connection window is waited for`() throws {
        var options = ServerOptions()
        options.withholdsWindowUpdates = true
        options.connectionWindowBytes = 65_535
        let stage = try Stage(.single, options)
        for tag in 1...30 { stage.submit(UInt64(tag), bodyBytes: 4096) }
        #expect(stage.run { stage.outcomes.count == 15 })
        stage.advance(by: .seconds(2))
        #expect(stage.outcomes.count == 15)
        stage.connections[1]?.withholdWindowUpdates(false)
        #expect(stage.finish(1...30))
        #expect(stage.outcomes.values.allSatisfy { $0 == .accepted })
        #expect(stage.pool.statistics.timeouts == 0)
    }

    @Test func `an answer before the body is sent counts, and frees its stream`() throws {
        var options = ServerOptions(streams: 1)
        options.withholdsWindowUpdates = true
        options.connectionWindowBytes = 65_535
        let stage = try Stage(.single, options)
        stage.onHead = { request, connection in
            connection.respond(ServerResponse(status: 413), on: request.stream)
            // RST_STREAM(NO_ERROR), which the library would send instead of the answer.
            connection.send(raw: [0, 0, 4, 3, 0, 0, 0, 0, UInt8(request.stream), 0, 0, 0, 0])
        }
        stage.submit(1, bodyBytes: 200_000)
        #expect(stage.finish([1]))
        #expect(stage.outcomes[1] == .response(status: 413, body: ""))
        stage.onHead = { _, _ in }
        stage.submit(2, bodyBytes: 0)
        #expect(stage.finish([2]))
        #expect(stage.outcomes[2] == .accepted)
        #expect(stage.pool.inFlight == 0)
    }

    @Test func `a silent connection with a request open is asked, then given up`() throws {
        let stage = try Stage(.single)
        stage.onRequest = { _, connection in if connection.number == 1 { connection.playDead() } }
        stage.submit(1)
        #expect(stage.run { stage.arrivals.count == 1 })
        stage.advance(by: .seconds(16))
        stage.submit(2)
        stage.advance(by: .seconds(3))
        // Held: nothing goes out before the PING is answered.
        #expect(stage.arrivals.count == 1)
        stage.onRequest = { $1.respond(ServerResponse(status: 200), on: $0.stream) }
        stage.advance(by: .seconds(9))
        #expect(stage.finish([1, 2]))
        #expect(
            stage.outcomes[1] == .ambiguous(.timedOut)
                || stage.outcomes[1] == .ambiguous(.pingUnanswered))
        #expect(stage.outcomes[2] == .accepted)
        #expect(stage.pool.statistics.pings >= 1)
    }

    @Test func `a PING of the peer is answered`() throws {
        let stage = try Stage(.single)
        stage.submit(1)
        #expect(stage.finish([1]))
        stage.connections[1]?.ping()
        #expect(
            stage.run {
                stage.notices.contains {
                    if case .pingAcknowledged = $0.event { true } else { false }
                }
            })
    }

    @Test func `no answer in time is ambiguous; three in a row replace the connection`() throws {
        var policy = PoolPolicy.fcm(connectionsMin: 1, connectionsMax: 1)
        policy.noProgress = .hours(1)
        policy.ping.afterSilence = .hours(1)
        let stage = try Stage(policy)
        stage.onRequest = { request, connection in
            if connection.number > 1 {
                connection.respond(ServerResponse(status: 200), on: request.stream)
            }
        }
        for tag in 1...3 {
            stage.submit(UInt64(tag))
            #expect(stage.run { stage.arrivals.count == tag })
            stage.advance(by: .seconds(5))
        }
        stage.advance(by: .seconds(15))
        #expect(stage.finish(1...3))
        #expect((1...3).allSatisfy { stage.outcomes[$0] == .ambiguous(.timedOut) })
        let resets = stage.notices.filter {
            if case .streamReset(_, 8) = $0.event { true } else { false }
        }
        #expect(resets.count == 3, "\(stage.notices)")
        stage.submit(4)
        stage.advance(by: .seconds(2))
        #expect(stage.finish([4]))
        #expect(stage.paths(on: 2) == ["/4"])
    }

    @Test func `a peer that stops reading is given up, what it never got is sent elsewhere`() throws
    {
        var policy = PoolPolicy.single
        policy.ping.afterSilence = .hours(1)
        policy.noProgress = .hours(1)
        policy.requestTimeout = .hours(1)
        let stage = try Stage(
            policy,
            {
                var options = ServerOptions()
                options.connectionWindowBytes = 1 << 30
                options.initialWindowBytes = 1 << 30
                return options
            }())
        stage.submit(1)
        #expect(stage.finish([1]))
        stage.connections[1]?.playDead(readingOn: false)
        for tag in 2...40 { stage.submit(UInt64(tag), bodyBytes: 1 << 20) }
        stage.settle()
        stage.advance(by: .seconds(12))
        #expect(stage.run { stage.outcomes.count == 40 })
        let lost = stage.outcomes.values.filter { $0 == .ambiguous(.writeStalled) }
        #expect(!lost.isEmpty && lost.count < 39)
        #expect(stage.outcomes.values.filter { $0 == .accepted }.count == 40 - lost.count)
        #expect(stage.repeated.isEmpty)
    }

    @Test func `without HTTP/2 in ALPN nothing is sent and the alarm says why`() throws {
        let stage = try Stage(.single)
        stage.listener.acceptance = { $0 == 1 ? .withoutHTTP2 : .serve }
        stage.submit(1)
        #expect(stage.run { !stage.alarms.isEmpty })
        guard case .http2NotNegotiated = stage.alarms.first else {
            Issue.record("\(stage.alarms)")
            return
        }
        stage.advance(by: .seconds(3))
        #expect(stage.finish([1]))
        #expect(stage.outcomes[1] == .accepted)
    }

    @Test func `broken TLS is told and retried with growing pauses`() throws {
        let stage = try Stage(.single)
        stage.listener.acceptance = { _ in .breakTLS }
        stage.submit(1, deadline: stage.loop.now + .seconds(60))
        stage.advance(by: .seconds(61), step: .milliseconds(500))
        #expect(stage.outcomes[1] == .notProcessed(.deadlinePassed))
        #expect(stage.listener.accepted >= 3 && stage.listener.accepted < 25)
        #expect(stage.pool.statistics.connectFailures == stage.listener.accepted)
        guard case .tlsFailed = stage.alarms.first else {
            Issue.record("\(stage.alarms)")
            return
        }
        // With nothing to send, nothing is dialled.
        let dialled = stage.listener.accepted
        stage.advance(by: .minutes(3), step: .seconds(10))
        #expect(stage.listener.accepted <= dialled + 1)
    }

    @Test func `a GOAWAY that blames the credentials stops the dialling until they are replaced`()
        throws
    {
        let stage = try Stage(.single)
        stage.onRequest = { request, connection in
            if connection.number == 1 {
                connection.goAway(lastStream: 0, debug: #"{"reason":"BadCertificate"}"#)
                connection.close()
            } else {
                connection.respond(ServerResponse(status: 200), on: request.stream)
            }
        }
        stage.submit(1)
        stage.advance(by: .minutes(4), step: .seconds(5))
        #expect(stage.listener.accepted == 1)
        #expect(stage.outcomes.isEmpty)
        #expect(
            stage.alarms.contains {
                if case .credentialsRefused("BadCertificate") = $0 { true } else { false }
            })
        stage.pool.replaceConnections()
        stage.advance(by: .seconds(2))
        #expect(stage.finish([1]))
        #expect(stage.outcomes[1] == .accepted)
    }

    @Test func `replaced connections finish what they carry and take nothing new`() throws {
        let stage = try Stage(.single)
        stage.onRequest = { request, connection in
            if connection.number > 1 {
                connection.respond(ServerResponse(status: 200), on: request.stream)
            }
        }
        stage.submit(1)
        #expect(stage.run { stage.arrivals.count == 1 })
        stage.pool.replaceConnections()
        stage.submit(2)
        stage.advance(by: .seconds(2))
        #expect(stage.finish([2]))
        #expect(stage.outcomes[1] == nil)
        stage.connections[1]?.respond(ServerResponse(status: 200), on: 1)
        #expect(stage.finish([1]))
        #expect(stage.paths(on: 2) == ["/2"])
        #expect(stage.run { stage.connections[1]?.isClosed == true })
    }

    @Test func `a request over its deadline is not written`() throws {
        let stage = try Stage(.single, ServerOptions(streams: 1))
        stage.onRequest = { _, _ in }
        stage.submit(1)
        #expect(stage.run { stage.arrivals.count == 1 })
        stage.submit(2, deadline: stage.loop.now + .seconds(3))
        stage.submit(3, deadline: stage.loop.now + .seconds(8))
        stage.advance(by: .seconds(2))
        #expect(stage.outcomes.isEmpty)
        stage.advance(by: .seconds(2))
        #expect(stage.outcomes == [2: .notProcessed(.deadlinePassed)])
        stage.advance(by: .seconds(5))
        #expect(stage.outcomes[3] == .notProcessed(.deadlinePassed))
        #expect(stage.arrivals.count == 1)
    }

    @Test func `what is urgent is written before what is not, each in its order`() throws {
        let stage = try Stage(.single, ServerOptions(streams: 1))
        var held: [(ServerConnection, Int32)] = []
        stage.onRequest = { request, connection in held.append((connection, request.stream)) }
        stage.submit(1)
        #expect(stage.run { held.count == 1 })
        for tag in 2...3 { stage.submit(UInt64(tag)) }
        for tag in 4...5 { stage.submit(UInt64(tag), isUrgent: true) }
        stage.submit(6)
        for count in 2...6 {
            let (connection, stream) = held.removeFirst()
            connection.respond(ServerResponse(status: 200), on: stream)
            #expect(stage.run { stage.arrivals.count == count })
        }
        #expect(stage.arrivals.map(\.path) == ["/1", "/4", "/5", "/2", "/3", "/6"])
    }

    @Test func `the owner is asked before each writing and may take the request back`() throws {
        let stage = try Stage(.single)
        var asked: [UInt64] = []
        stage.mayWrite = { tag in
            asked.append(tag)
            return tag != 2
        }
        var refusals = 0
        stage.onRequest = { request, connection in
            if request.text(":path") == "/3", refusals == 0 {
                refusals = 1
                connection.reset(request.stream, codes: [7])
            } else {
                connection.respond(ServerResponse(status: 200), on: request.stream)
            }
        }
        for tag in 1...3 { stage.submit(UInt64(tag)) }
        #expect(stage.run { refusals == 1 })
        stage.advance(by: .milliseconds(300), step: .milliseconds(100))
        #expect(stage.finish(1...3))
        #expect(stage.outcomes[2] == .withdrawn)
        #expect(stage.arrivals.allSatisfy { $0.path != "/2" })
        #expect(asked.filter { $0 == 3 }.count == 2)
    }

    @Test func `the owner may replace the connections while it is asked`() throws {
        let stage = try Stage(.single)
        // One with a request open stays until that is answered.
        stage.onRequest = { request, connection in
            guard request.text(":path") != "/1" else { return }
            connection.respond(ServerResponse(status: 200), on: request.stream)
        }
        stage.submit(1)
        #expect(stage.run { stage.arrivals.count == 1 })
        var asked = 0
        stage.mayWrite = { [unowned stage] _ in
            asked += 1
            if asked == 1 { stage.pool.replaceConnections() }
            // So that one that is asked for ever ends here too.
            return asked < 100
        }
        for tag in 2...3 { stage.submit(UInt64(tag)) }
        #expect(stage.finish(2...3))
        #expect((2...3).allSatisfy { stage.outcomes[$0] == .accepted })
        #expect(asked == 3)
        #expect(stage.paths(on: 2) == ["/2", "/3"])
    }

    @Test func `the owner may close and submit when it hears of passed deadlines`() throws {
        for closes in [true, false] {
            let stage = try Stage(.single, ServerOptions(streams: 1))
            stage.onRequest = { _, _ in }
            stage.submit(1)
            #expect(stage.run { stage.arrivals.count == 1 })
            for tag in 2...5 {
                stage.submit(UInt64(tag), deadline: stage.loop.now + .seconds(tag == 4 ? 60 : 1))
            }
            stage.onFinished = { [unowned stage] tag, _ in
                if tag == 2, closes { stage.pool.close() }
                if tag == 2, !closes { stage.submit(6) }
            }
            stage.advance(by: .seconds(3))
            for tag in [2, 3, 5] as [UInt64] {
                #expect(stage.outcomes[tag] == .notProcessed(.deadlinePassed))
            }
            #expect(stage.outcomes[4] == (closes ? .notProcessed(.closed) : nil))
            #expect(stage.repeated.isEmpty)
            #expect(stage.pool.queued == (closes ? 0 : 2))
        }
    }

    @Test func `a full queue hands back what is over it`() throws {
        let stage = try Stage(.single)
        for tag in 0...UInt64(Limits.queuedRequestsMax) { stage.submit(tag, bodyBytes: 0) }
        stage.loop.turn(waitingUpTo: .zero)
        #expect(stage.outcomes == [UInt64(Limits.queuedRequestsMax): .notProcessed(.queueFull)])
    }

    @Test func `draining sends what was submitted, takes nothing new and closes`() throws {
        let stage = try Stage(.single, ServerOptions(streams: 2))
        for tag in 1...10 { stage.submit(UInt64(tag)) }
        stage.pool.drain()
        stage.submit(11)
        #expect(stage.finish(1...11))
        #expect(stage.outcomes[11] == .notProcessed(.closed))
        #expect((1...10).allSatisfy { stage.outcomes[$0] == .accepted })
        #expect(stage.run { stage.pool.connectionCount == 0 })
    }

    @Test func `closing hands everything back at once`() throws {
        let stage = try Stage(.single, ServerOptions(streams: 2))
        stage.onRequest = { _, _ in }
        for tag in 1...5 { stage.submit(UInt64(tag)) }
        #expect(stage.run { stage.arrivals.count == 2 })
        stage.pool.close()
        #expect(stage.outcomes.count == 5)
        #expect((1...2).allSatisfy { stage.outcomes[$0] == .ambiguous(.closed) })
        #expect((3...5).allSatisfy { stage.outcomes[$0] == .notProcessed(.closed) })
        stage.submit(6)
        stage.settle()
        #expect(stage.outcomes[6] == .notProcessed(.closed))
        #expect(stage.pool.connectionCount == 0 && stage.pool.inFlight == 0)
    }

    @Test func `the owner may submit and close from inside a result`() throws {
        let stage = try Stage(.single)
        stage.onFinished = { [unowned stage] tag, _ in
            if tag < 5 { stage.submit(tag + 1) }
            if tag == 5 { stage.pool.close() }
        }
        stage.submit(1)
        #expect(stage.finish(1...5))
        stage.settle()
        #expect(stage.pool.connectionCount == 0)
    }

    @Test func `the answer's parts are all there`() throws {
        let stage = try Stage(.single)
        stage.onRequest = { request, connection in
            connection.respond(
                ServerResponse(
                    status: 429,
                    fields: [
                        ServerField("apns-id", "abc"), ServerField("retry-after", "17"),
                        ServerField("content-type", "application/json"),
                    ], text: #"{"reason":"TooManyRequests"}"#), on: request.stream,
                after: .milliseconds(70))
        }
        var apnsID: String?
        var retryAfter: String?
        var took = TimeSpan.zero
        stage.onFinished = { _, result in
            guard case .response(let response) = result else { return }
            apnsID = response.text(.apnsID)
            retryAfter = response.text(.retryAfter)
            took = response.firstByteAt - response.sentAt
        }
        stage.submit(1)
        #expect(stage.run { stage.arrivals.count == 1 })
        stage.advance(by: .milliseconds(70), step: .milliseconds(70))
        #expect(stage.finish([1]))
        #expect(
            stage.outcomes[1]
                == .response(status: 429, body: #"{"reason":"TooManyRequests"}"#))
        #expect(apnsID == "abc" && retryAfter == "17")
        #expect(took == .milliseconds(70))
    }

    @Test func `a body over the limit is cut, the status counts`() throws {
        let stage = try Stage(.single)
        stage.onRequest = { request, connection in
            connection.respond(
                ServerResponse(status: 502, body: Array(repeating: 60, count: 300_000)),
                on: request.stream)
        }
        var length = 0
        var isTruncated = false
        stage.onFinished = { _, result in
            guard case .response(let response) = result else { return }
            length = response.body.count
            isTruncated = response.isBodyTruncated
        }
        stage.submit(1)
        #expect(stage.finish([1]))
        #expect(length == Limits.responseBodyBytesMax && isTruncated)
    }

    @Test func `grows one connection at a time under lasting pressure and shrinks again`() throws {
        let stage = try Stage(
            .apns(connectionsMin: 1, connectionsMax: 3), ServerOptions(streams: 2))
        stage.onRequest = { request, connection in
            connection.respond(ServerResponse(status: 200), on: request.stream, after: .seconds(1))
        }
        for tag in 1...60 { stage.submit(UInt64(tag)) }
        stage.advance(by: .seconds(2), step: .milliseconds(100))
        #expect(stage.listener.accepted == 1)
        stage.advance(by: .seconds(1), step: .milliseconds(100))
        #expect(stage.listener.accepted == 2)
        stage.advance(by: .seconds(15), step: .milliseconds(100))
        #expect(stage.listener.accepted == 3)
        #expect(stage.finish(1...60))
        stage.advance(by: .minutes(25), step: .seconds(20))
        #expect(stage.pool.openConnectionCount == 1)
        #expect(stage.outcomes.values.allSatisfy { $0 == .accepted })
    }

    @Test func `grows for what has waited too long, whatever urgent requests stand in front of it`()
        throws
    {
        let stage = try Stage(
            .apns(connectionsMin: 1, connectionsMax: 2), ServerOptions(streams: 1))
        stage.onRequest = { request, connection in
            connection.respond(ServerResponse(status: 200), on: request.stream, after: .seconds(1))
        }
        for tag in 1...20 { stage.submit(UInt64(tag)) }
        for tag in 21...60 {
            stage.submit(UInt64(tag), isUrgent: true)
            stage.advance(by: .milliseconds(100))
        }
        #expect(stage.listener.accepted == 2)
    }

    @Test func `turns only when something happens, pressed at its maximum too`() throws {
        let stage = try Stage(.single, ServerOptions(streams: 1))
        stage.onRequest = { _, _ in }
        for tag in 1...3 { stage.submit(UInt64(tag)) }
        #expect(stage.run { stage.arrivals.count == 1 })
        stage.advance(by: .seconds(3), step: .milliseconds(100))
        var turns = 0
        let end = SystemTime.shared.monotonic + .milliseconds(100)
        while SystemTime.shared.monotonic < end {
            stage.loop.turn(waitingUpTo: .milliseconds(20))
            turns += 1
        }
        #expect(turns < 30, "each turn waits for 20 ms, as nothing is due")
    }

    @Test func `spreads requests over the least loaded connections`() throws {
        var policy = PoolPolicy.apns(connectionsMin: 3, connectionsMax: 3)
        policy.dialInterval = .zero
        let stage = try Stage(policy)
        stage.onRequest = { _, _ in }
        stage.submit(1)
        #expect(stage.run { stage.pool.openConnectionCount == 3 })
        for tag in 2...31 { stage.submit(UInt64(tag)) }
        #expect(stage.run { stage.arrivals.count == 31 })
        for connection in 1...3 { #expect((10...11).contains(stage.paths(on: connection).count)) }
    }

    @Test func `an aged connection is replaced before it goes`() throws {
        let stage = try Stage(.single)
        stage.submit(1)
        #expect(stage.finish([1]))
        stage.onRequest = { request, connection in
            connection.respond(
                ServerResponse(status: 200), on: request.stream, after: .milliseconds(500))
        }
        stage.advance(by: .hours(19), step: .minutes(20))
        #expect(stage.run { stage.connections[1]?.isClosed == true })
        for tag in 2...4 {
            stage.submit(UInt64(tag))
            stage.advance(by: .seconds(1), step: .milliseconds(250))
        }
        #expect(stage.finish(2...4))
        #expect(stage.listener.accepted == 2)
    }

    @Test func `a connection that has used up its streams is replaced`() throws {
        var policy = PoolPolicy.single
        policy.streamsPerConnection = 3
        policy.dialInterval = .zero
        let stage = try Stage(policy)
        var tag: UInt64 = 0
        stage.onFinished = { [unowned stage] _, _ in
            tag += 1
            if stage.listener.accepted < 4 { stage.submit(tag) }
        }
        stage.submit(0)
        #expect(stage.run { stage.listener.accepted == 4 && stage.pool.inFlight == 0 })
        #expect(stage.outcomes.values.allSatisfy { $0 == .accepted })
        #expect(stage.repeated.isEmpty)
    }

    @Test func `a header list over the peer's limit is refused here, others go on`() throws {
        let stage = try Stage(.single)
        stage.onOpened = { $0.change(SettingsChange(headerListBytes: 400)) }
        stage.submit(1)
        #expect(stage.finish([1]))
        stage.submit(2) { $0.add("apns-topic", String(repeating: "x", count: 300)) }
        stage.submit(3)
        #expect(stage.finish([2, 3]))
        #expect(stage.outcomes[2] == .notProcessed(.headerListTooLarge(limit: 400)))
        #expect(stage.outcomes[1] == .accepted && stage.outcomes[3] == .accepted)
    }

    @Test func `ten thousand requests over one connection leave nothing behind`() throws {
        let stage = try Stage(.single, ServerOptions(streams: 100))
        var next: UInt64 = 200
        stage.onFinished = { [unowned stage] _, _ in
            next += 1
            if next <= 10_000 { stage.submit(next) }
        }
        for tag in 1...200 { stage.submit(UInt64(tag)) }
        #expect(stage.run { stage.finished.count == 10_000 })
        #expect(stage.outcomes.count == 10_000)
        #expect(stage.outcomes.values.allSatisfy { $0 == .accepted })
        #expect(stage.pool.inFlight == 0 && stage.pool.queued == 0)
        stage.settle()
        #expect(stage.connections[1]?.openStreams == 0)
        #expect(stage.listener.accepted == 1)
        #expect(!stage.sawBreach)
    }

    @Test func `the server's compression table never holds a secret`() throws {
        let stage = try Stage(.single)
        var secretsIndexed = 0
        var topics = Set<Bool>()
        stage.onRequest = { request, connection in
            for name: StaticString in [":path", "authorization"] {
                if request.field(name)?.neverIndexed != true { secretsIndexed += 1 }
            }
            topics.insert(request.field("apns-topic")?.neverIndexed ?? true)
            connection.respond(ServerResponse(status: 200), on: request.stream)
        }
        var sizes: [Int] = []
        for tag in 1...20 {
            stage.submit(UInt64(tag)) { $0.add("apns-topic", "com.example.app") }
            #expect(stage.finish([UInt64(tag)]))
            sizes.append(stage.connections[1]?.decoderTableBytes ?? 0)
        }
        #expect(secretsIndexed == 0)
        #expect(topics == [false])
        #expect(sizes.first == sizes.last)
    }
}
