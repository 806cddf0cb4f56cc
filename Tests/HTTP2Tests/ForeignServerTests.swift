import Base
import HTTP2
import Testing

@Suite(.serialized) struct `Servers that others wrote` {
    @Test(arguments: [
        [], ["-m", "3"], ["-c", "0"], ["-b", "60"], ["-e"], ["--no-content-length"],
        ["--trailer", "x-check: 1"], ["-w", "20", "-W", "20"],
    ])
    func `nghttpd echoes every body, whatever its options`(options: [String]) throws {
        let server = try ForeignServer.nghttpd(
            ["--echo-upload"] + options, .apns(connectionsMin: 2, connectionsMax: 2))
        defer { server.stop() }
        var random = SeededRandom(seed: 3)
        var bodies: [UInt64: String] = [:]
        for _ in 0..<60 {
            let length = Int.random(in: 1...9000, using: &random)
            let body = (0..<length).map { _ in UInt8.random(in: 97...122, using: &random) }
            bodies[server.submit("/3/device/token", body: body)] = String(
                decoding: body, as: UTF8.self)
        }
        #expect(server.finishAll())
        for (tag, body) in bodies {
            #expect(server.outcomes[tag] == .response(status: 200, body: body))
        }
        #expect(server.pool.statistics.ambiguous == 0 && server.pool.statistics.resends == 0)
        #expect(server.pool.inFlight == 0)
    }

    @Test func `nghttpd takes ten thousand requests on one connection`() throws {
        let server = try ForeignServer.nghttpd(
            ["-m", "50"], .apns(connectionsMin: 1, connectionsMax: 1))
        defer { server.stop() }
        for index in 0..<10_000 { server.submit("/\(index)", body: Array("x\(index)".utf8)) }
        #expect(server.finishAll())
        let isAnswered = server.outcomes.values.allSatisfy {
            if case .response(status: 404, _) = $0 { true } else { false }
        }
        #expect(isAnswered)
        #expect(server.pool.statistics.requestsWritten == 10_000)
        #expect(server.pool.statistics.connectionsOpened == 1)
    }

    @Test func `Node keeps its stream limit and sees the secrets marked as such`() throws {
        let server = try ForeignServer.node(
            Self.script, .apns(connectionsMin: 1, connectionsMax: 1))
        defer { server.stop() }
        for _ in 0..<100 { server.submit("/slow") }
        let tag = server.submit("/sensitive")
        #expect(server.finishAll())
        #expect(server.outcomes[tag] == .response(status: 200, body: ":path authorization"))
        let last = server.submit("/most")
        #expect(server.finishAll())
        #expect(server.outcomes[last] == .response(status: 200, body: "5"))
    }

    @Test func `Node's informational answers, refusals and resets are told apart`() throws {
        let server = try ForeignServer.node(
            Self.script, .apns(connectionsMin: 1, connectionsMax: 1))
        defer { server.stop() }
        let hints = server.submit("/hints")
        let refused = server.submit("/refuse")
        let cancelled = server.submit("/cancel")
        let echoed = server.submit("/echo", body: Array("hello".utf8))
        #expect(server.finishAll())
        #expect(server.outcomes[hints] == .response(status: 200, body: "after the hints"))
        #expect(server.outcomes[refused] == .response(status: 200, body: "second time"))
        #expect(server.outcomes[cancelled] == .ambiguous(.reset(.cancel)))
        #expect(server.outcomes[echoed] == .response(status: 200, body: "hello"))
        #expect(server.pool.statistics.refusals == 1)
    }

    @Test func `Node's GOAWAY with a reason moves the work to a new connection`() throws {
        let server = try ForeignServer.node(
            Self.script, .apns(connectionsMin: 1, connectionsMax: 1))
        defer { server.stop() }
        // Node's library drops streams that cross its GOAWAY without a word, whatever id it named;
        // so the later ones are submitted when the answer behind the GOAWAY is there.
        for _ in 0..<4 { server.submit("/slow") }
        server.submit("/goaway")
        #expect(server.finishAll())
        for _ in 0..<20 { server.submit("/slow") }
        #expect(server.finishAll())
        let statuses = server.outcomes.values.filter {
            if case .response(status: 200, _) = $0 { true } else { false }
        }
        #expect(statuses.count == 25)
        #expect(server.pool.statistics.connectionsOpened == 2)
        let isTold = server.alarms.contains {
            if case .goAway(.noError, "Shutdown") = $0 { true } else { false }
        }
        #expect(isTold)
    }

    @Test(arguments: [("1.2", "TLSv1.2 TLS_ECDHE_"), ("1.3", "TLSv1.3 TLS_")])
    func `Node agrees with us on the newest version it knows and on a suite with AEAD`(
        version: String, start: String
    ) throws {
        let server = try ForeignServer.node(
            Self.oneVersion(version), .apns(connectionsMin: 1, connectionsMax: 1))
        defer { server.stop() }
        let tag = server.submit("/tls")
        #expect(server.finishAll())
        guard case .response(status: 200, let body)? = server.outcomes[tag] else {
            Issue.record("\(server.outcomes)")
            return
        }
        #expect(body.hasPrefix(start) && (body.contains("_GCM_") || body.contains("_POLY1305")))
    }

    @Test func `Node with TLS 1.1 and no more is refused, and gets no request`() throws {
        let server = try ForeignServer.node(
            Self.oneVersion("1.1"), .apns(connectionsMin: 1, connectionsMax: 1))
        defer { server.stop() }
        server.submit("/tls")
        let isRefused = server.run {
            server.alarms.contains {
                if case .tlsFailed(let text) = $0 { text.contains("version") } else { false }
            }
        }
        #expect(isRefused, "\(server.alarms)")
        #expect(server.outcomes.isEmpty && server.pool.statistics.requestsWritten == 0)
    }

    /// A server that speaks TLS of one version and tells what was agreed on.
    private static func oneVersion(_ version: String) -> String {
        """
        const http2 = require('http2'), fs = require('fs');
        const [port, key, cert] = process.argv.slice(1);
        const server = http2.createSecureServer({
          key: fs.readFileSync(key), cert: fs.readFileSync(cert),
          minVersion: 'TLSv\(version)', maxVersion: 'TLSv\(version)',
          ciphers: 'DEFAULT@SECLEVEL=0'});
        server.on('stream', stream => {
          const socket = stream.session.socket;
          stream.respond({':status': 200});
          stream.end(socket.getProtocol() + ' ' + socket.getCipher().standardName);
        });
        server.listen(Number(port), '127.0.0.1');
        """
    }

    private static let script = """
        const http2 = require('http2'), fs = require('fs');
        const [port, key, cert] = process.argv.slice(1);
        const server = http2.createSecureServer({
          key: fs.readFileSync(key), cert: fs.readFileSync(cert),
          settings: {maxConcurrentStreams: 5}});
        let open = 0, most = 0, refused = false;
        server.on('stream', (stream, headers) => {
          open++; most = Math.max(most, open);
          stream.on('close', () => open--);
          stream.on('error', () => {});
          const answer = text => { stream.respond({':status': 200}); stream.end(text); };
          const chunks = [];
          stream.on('data', chunk => chunks.push(chunk));
          stream.on('end', () => {
            switch (headers[':path']) {
            case '/slow': setTimeout(() => answer(''), 5); break;
            case '/most': answer(String(most)); break;
            case '/sensitive': answer(headers[http2.sensitiveHeaders].sort().join(' ')); break;
            case '/echo': answer(Buffer.concat(chunks)); break;
            case '/hints':
              stream.additionalHeaders({':status': 103, link: '</x>; rel=preload'});
              answer('after the hints'); break;
            case '/refuse':
              if (refused) answer('second time');
              else { refused = true; stream.close(http2.constants.NGHTTP2_REFUSED_STREAM); }
              break;
            case '/cancel': stream.close(http2.constants.NGHTTP2_CANCEL); break;
            case '/goaway':
              stream.session.goaway(0, 2 ** 31 - 1, Buffer.from('{"reason":"Shutdown"}'));
              answer(''); break;
            default: answer('');
            }
          });
        });
        server.listen(Number(port), '127.0.0.1');
        """
}
