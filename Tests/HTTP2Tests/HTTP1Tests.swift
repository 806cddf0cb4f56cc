import Base
import HTTP2
import Testing

@Suite(.serialized) struct `Peers that speak HTTP/1.1 only` {
    private static let created = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n"

    @Test(arguments: [["http/1.1"], []])
    func `get whole requests, one after the other on one connection`(alpn: [String]) throws {
        let server = try OldServer(alpn: alpn)
        defer { server.stop() }
        server.script = { number, _, peer in
            peer.send(
                "HTTP/1.1 201 Created\r\nRetry-AFTER: \(number)\r\nContent-Length: 2\r\n\r\nok")
        }
        let tags = (0..<5).map { server.submit("/p/\($0)?a=b", body: "body \($0)") }
        #expect(server.finishAll())
        for (index, tag) in tags.enumerated() {
            #expect(server.outcomes[tag] == .response(status: 201, body: "ok"))
            #expect(server.headers[tag] == "\(index + 1)")
        }
        #expect(server.peers.count == 1 && server.pool.statistics.connectionsOpened == 1)
        let authority = server.pool.origin.authority
        #expect(
            server.seen.map(\.text)
                == (0..<5).map {
                    "POST /p/\($0)?a=b HTTP/1.1\r\nhost: \(authority)\r\nttl: 60\r\n"
                        + "content-length: 6\r\n\r\nbody \($0)"
                })
    }

    @Test func `are not spoken to where HTTP/1.1 is not wanted`() throws {
        var policy = OldServer.policy
        policy.speaksHTTP11 = false
        let server = try OldServer(policy)
        defer { server.stop() }
        server.submit()
        let isTold = server.run {
            server.alarms.contains {
                if case .http2NotNegotiated("http/1.1") = $0 { true } else { false }
            }
        }
        #expect(isTold && server.seen.isEmpty)
    }

    /// What a peer may answer, in pieces, and what it comes to.
    static let answers: [(name: String, pieces: [String], closes: Bool, outcome: Stage.Outcome)] = [
        ("empty", ["HTTP/1.1 204 No Content\r\n\r\n"], false, .response(status: 204, body: "")),
        (
            "byte by byte", "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok".map(String.init),
            false, .response(status: 201, body: "ok")
        ),
        (
            "chunked",
            [
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
                "2;x=y\r\nde\r\n0\r\n\r\n",
            ],
            false, .response(status: 200, body: "abcde")
        ),
        (
            "without a length", ["HTTP/1.1 500 Oops\r\n\r\n", "broken"], true,
            .response(status: 500, body: "broken")
        ),
        (
            "HTTP/1.0", ["HTTP/1.0 201 Created\r\n\r\n"], true, .response(status: 201, body: "")
        ),
        (
            "to be closed",
            ["HTTP/1.1 410 Gone\r\nConnection: close\r\nContent-Length: 1\r\n\r\nx"],
            true, .response(status: 410, body: "x")
        ),
        (
            "after 100", ["HTTP/1.1 100 Continue\r\n\r\n", created], false,
            .response(status: 201, body: "")
        ),
        (
            "after hints",
            [
                "HTTP/1.1 103 Early Hints\r\nLocation: /early\r\n\r\n",
                "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
            ], false, .response(status: 201, body: "")
        ),
        (
            "redirected",
            ["HTTP/1.1 302 Found\r\nLocation: http://10.0.0.1/\r\nContent-Length: 0\r\n\r\n"],
            false, .response(status: 302, body: "")
        ),
        (
            "cut in the head", ["HTTP/1.1 201 Crea"], true, .ambiguous(.connectionLost)
        ),
        (
            "cut in the body", ["HTTP/1.1 201 Created\r\nContent-Length: 9\r\n\r\nabc"], true,
            .ambiguous(.connectionLost)
        ),
        (
            "cut in a chunk", ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n9\r\nabc"],
            true,
            .ambiguous(.connectionLost)
        ),
        ("nothing", [], true, .ambiguous(.connectionLost)),
        ("garbage", ["hello, who is there?\r\n\r\n"], false, .ambiguous(.protocolError)),
        ("HTTP/2", ["PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"], false, .ambiguous(.protocolError)),
        (
            "a huge head",
            ["HTTP/1.1 201 Created\r\n" + String(repeating: "a: b\r\n", count: 5000)], false,
            .ambiguous(.protocolError)
        ),
        (
            "a huge field",
            ["HTTP/1.1 201 Created\r\nx: " + String(repeating: "y", count: 40_000)], false,
            .ambiguous(.protocolError)
        ),
        (
            "two lengths",
            ["HTTP/1.1 201 Created\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nab"], false,
            .ambiguous(.protocolError)
        ),
        (
            "length and chunks",
            [
                "HTTP/1.1 201 Created\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
                "1\r\na\r\n0\r\n\r\n",
            ], false, .ambiguous(.protocolError)
        ),
        (
            "a bad chunk", ["HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"], false,
            .ambiguous(.protocolError)
        ),
        (
            "another protocol",
            ["HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"],
            false,
            .ambiguous(.protocolError)
        ),
        (
            "informational without end",
            [String(repeating: "HTTP/1.1 102 Processing\r\n\r\n", count: 40)], false,
            .ambiguous(.protocolError)
        ),
    ]

    @Test(arguments: answers)
    func `are understood, or end the connection`(
        name: String, pieces: [String], closes: Bool, outcome: Stage.Outcome
    ) throws {
        let server = try OldServer()
        defer { server.stop() }
        server.script = { _, text, peer in
            guard text.hasPrefix("POST /first") else { return peer.send(Self.created) }
            for piece in pieces { peer.send(piece) }
            if closes { peer.close() }
        }
        let first = server.submit("/first")
        #expect(server.finishAll())
        #expect(server.outcomes[first] == outcome, "\(name)")
        // Whatever it was, the next one gets through.
        let second = server.submit("/second")
        #expect(server.finishAll())
        #expect(server.outcomes[second] == .response(status: 201, body: ""))
        let isReused: Bool =
            if case .response = outcome { !closes } else { false }
        #expect(server.peers.count == (isReused ? 1 : 2), "\(name)")
        #expect(server.pool.inFlight == 0 && server.pool.queued == 0)
    }

    @Test func `send nothing that is taken for the next answer`() throws {
        let server = try OldServer()
        defer { server.stop() }
        server.script = { _, _, peer in
            // An answer nobody asked for comes right behind the first one.
            peer.send(Self.created + "HTTP/1.1 410 Gone\r\nContent-Length: 0\r\n\r\n")
        }
        let tags = (0..<3).map { _ in server.submit() }
        #expect(server.finishAll())
        #expect(tags.allSatisfy { server.outcomes[$0] == .response(status: 201, body: "") })
        #expect(server.peers.count == 3)
    }

    @Test func `send a farewell on an idle connection, which is closed`() throws {
        let server = try OldServer()
        defer { server.stop() }
        server.submit()
        #expect(server.finishAll())
        server.peers[0].send("HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\n\r\n")
        #expect(server.run { server.pool.connectionCount == 0 })
        let next = server.submit()
        #expect(server.finishAll())
        #expect(server.outcomes[next] == .response(status: 201, body: ""))
    }

    @Test func `get no more of a body than is kept`() throws {
        let server = try OldServer()
        defer { server.stop() }
        server.script = { _, _, peer in
            peer.send("HTTP/1.1 500 Oops\r\n\r\n" + String(repeating: "x", count: 200_000))
        }
        let tag = server.submit()
        #expect(server.finishAll())
        guard case .response(status: 500, let body) = server.outcomes[tag] else {
            Issue.record("\(String(describing: server.outcomes[tag]))")
            return
        }
        #expect(body.utf8.count == Limits.responseBodyBytesMax)
        #expect(server.run { server.pool.connectionCount == 0 })
    }

    @Test func `have their deadline, and the connection goes with the request`() throws {
        var policy = OldServer.policy
        policy.requestTimeout = .milliseconds(150)
        let server = try OldServer(policy)
        defer { server.stop() }
        server.script = { _, text, peer in
            if text.hasPrefix("POST /slow") { return }
            peer.send(Self.created)
        }
        let slow = server.submit("/slow")
        #expect(server.finishAll())
        #expect(server.outcomes[slow] == .ambiguous(.timedOut))
        let next = server.submit()
        #expect(server.finishAll())
        #expect(server.outcomes[next] == .response(status: 201, body: ""))
        #expect(server.peers.count == 2)
    }

    @Test func `have few connections, and each request its own answer`() throws {
        var policy = OldServer.policy
        policy.growthWait = .milliseconds(1)
        policy.growthPressure = .milliseconds(1)
        let server = try OldServer(policy)
        defer { server.stop() }
        server.script = { _, text, peer in
            let path = text.split(separator: " ")[1]
            peer.send("HTTP/1.1 200 OK\r\nContent-Length: \(path.utf8.count)\r\n\r\n\(path)")
        }
        let tags = (0..<300).map { ($0, server.submit("/\($0)")) }
        #expect(server.finishAll())
        for (number, tag) in tags {
            #expect(server.outcomes[tag] == .response(status: 200, body: "/\(number)"))
        }
        #expect(server.peers.count <= 2)
    }

    @Test(arguments: ["a\r\nx-evil: 1", "a\nb", "a\u{0}b"])
    func `get no field that is two`(value: String) throws {
        let server = try OldServer()
        defer { server.stop() }
        let bad = server.submit(field: value)
        let good = server.submit(field: "fine")
        #expect(server.finishAll())
        #expect(server.outcomes[bad] == .notProcessed(.malformedRequest))
        #expect(server.outcomes[good] == .response(status: 201, body: ""))
        #expect(server.seen.count == 1)
    }

    @Test func `hold a path that would be two words back`() throws {
        let server = try OldServer()
        defer { server.stop() }
        let bad = server.submit("/a HTTP/1.1\r\nx: y")
        #expect(server.finishAll())
        #expect(server.outcomes[bad] == .notProcessed(.malformedRequest))
    }

    @Test func `written by others answer: Node's https server`() throws {
        let server = try ForeignServer.node(Self.script, OldServer.policy)
        defer { server.stop() }
        let plain = server.submit("/plain", body: Array("hello".utf8))
        let chunked = server.submit("/chunked", body: Array("abc".utf8))
        let early = server.submit("/early")
        let close = server.submit("/close")
        let after = server.submit("/plain", body: Array("again".utf8))
        #expect(server.finishAll())
        #expect(server.outcomes[plain] == .response(status: 201, body: "hello"))
        #expect(server.outcomes[chunked] == .response(status: 200, body: "abcabc"))
        #expect(server.outcomes[early] == .response(status: 413, body: ""))
        #expect(server.outcomes[close] == .response(status: 429, body: "later"))
        #expect(server.outcomes[after] == .response(status: 201, body: "again"))
        #expect(server.pool.statistics.ambiguous == 0)
    }

    @Test func `may agree on HTTP/2 and then ask for HTTP/1.1`() throws {
        let server = try ForeignServer.node(Self.turningScript, OldServer.policy)
        defer { server.stop() }
        let tags = (0..<5).map { server.submit("/p\($0)", body: Array("hello".utf8)) }
        #expect(server.finishAll())
        #expect(
            tags.allSatisfy { server.outcomes[$0] == .response(status: 201, body: "1.1 hello") })
        // It is not asked again for what it does not want.
        let dials = server.pool.statistics.dials
        let resends = server.pool.statistics.resends
        let next = server.submit("/next", body: Array("again".utf8))
        #expect(server.finishAll())
        #expect(server.outcomes[next] == .response(status: 201, body: "1.1 again"))
        #expect(server.pool.statistics.resends == resends && resends > 0)
        #expect(server.pool.statistics.dials == dials)
    }

    @Test func `may ask for HTTP/1.1 in vain where it is not spoken`() throws {
        var policy = OldServer.policy
        policy.speaksHTTP11 = false
        let server = try ForeignServer.node(Self.turningScript, policy)
        defer { server.stop() }
        let tag = server.submit("/p")
        #expect(server.finishAll())
        #expect(server.outcomes[tag] == .notProcessed(.http11Required))
    }

    private static let turningScript = """
        const http2 = require('http2'), fs = require('fs');
        const [port, key, cert] = process.argv.slice(1);
        http2.createSecureServer(
          {key: fs.readFileSync(key), cert: fs.readFileSync(cert), allowHTTP1: true}, (req, res) => {
          if (req.httpVersionMajor === 2) return req.stream.close(13);
          const chunks = [];
          req.on('data', chunk => chunks.push(chunk));
          req.on('end', () => {
            const body = Buffer.from('1.1 ' + Buffer.concat(chunks));
            res.writeHead(201, {'Content-Length': body.length});
            res.end(body);
          });
        }).listen(Number(port), '127.0.0.1');
        """

    private static let script = """
        const https = require('https'), fs = require('fs');
        const [port, key, cert] = process.argv.slice(1);
        https.createServer({key: fs.readFileSync(key), cert: fs.readFileSync(cert)}, (req, res) => {
          const chunks = [];
          req.on('data', chunk => chunks.push(chunk));
          req.on('end', () => {
            const body = Buffer.concat(chunks);
            switch (req.url) {
            case '/plain': res.writeHead(201, {'Content-Length': body.length}); res.end(body); break;
            case '/chunked': res.write(body); res.end(body); break;
            case '/early': res.writeHead(413, {'Content-Length': 0}); res.end(); break;
            case '/close':
              res.writeHead(429, {'Connection': 'close', 'Retry-After': '3'}); res.end('later'); break;
            }
          });
        }).listen(Number(port), '127.0.0.1');
        """
}
