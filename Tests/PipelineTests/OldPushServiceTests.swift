// A push service that speaks HTTP/1.1 only: Node's https server, which writes what it received to a
// file.

import Base
import Crypto
import EventLoop
import Gateways
import Glibc
import JSON
import Testing
import TokenIndex

@testable import Pipeline

@Suite(.serialized) struct `Push services without HTTP/2` {
    /// Node's https server with a script; answers by the path's last word, such as `/p/201`.
    private final class Service {
        let port: UInt16
        let caFile: String
        private let child: pid_t
        private let files: [String]
        private let journal: String

        init() throws {
            let authority = try CertificateAuthority()
            let issued = try authority.issue(hosts: ["localhost", "push.localhost"])
            files = try [authority.certificatePEM, issued.certificatePEM, issued.keyPEM, ""].map {
                try Self.file($0)
            }
            caFile = files[0]
            journal = files[3]
            let reserved = try ListeningSocket.open(host: "127.0.0.1", port: 0)
            SocketIO.close(reserved.fd)
            port = reserved.port
            child = Self.spawn([
                "node", "-e", Self.script, "--", "\(port)", files[2], files[1], journal,
            ])
        }

        deinit {
            kill(child, SIGKILL)
            var status: Int32 = 0
            waitpid(child, &status, 0)
            for file in files { unlink(file) }
        }

        /// The requests so far: path, HTTP version and fields as one JSON object a line.
        var requests: [String] {
            guard let file = fopen(journal, "r") else { return [] }
            defer { fclose(file) }
            var bytes = [UInt8](repeating: 0, count: 1 << 20)
            let count = fread(&bytes, 1, bytes.count, file)
            return String(decoding: bytes[..<count], as: UTF8.self).split(separator: "\n").map(
                String.init)
        }

        private static func file(_ text: String) throws -> String {
            var name = Array("/tmp/bugle-old-XXXXXX".utf8CString)
            let fd = mkstemp(&name)
            try #require(fd >= 0)
            let bytes = Array(text.utf8)
            write(fd, bytes, bytes.count)
            close(fd)
            return String(decoding: name.dropLast().map { UInt8(bitPattern: $0) }, as: UTF8.self)
        }

        private static func spawn(_ command: [String]) -> pid_t {
            var arguments = command.map { strdup($0) } + [nil]
            defer { for argument in arguments { free(argument) } }
            var pid: pid_t = 0
            let result = posix_spawnp(&pid, command[0], nil, nil, &arguments, environ)
            precondition(result == 0, "\(command[0]) cannot be started")
            return pid
        }

        private static let script = """
            const https = require('https'), fs = require('fs');
            const [port, key, cert, journal] = process.argv.slice(1);
            const options = {key: fs.readFileSync(key), cert: fs.readFileSync(cert)};
            https.createServer(options, (req, res) => {
              const chunks = [];
              req.on('data', chunk => chunks.push(chunk));
              req.on('end', () => {
                const body = Buffer.concat(chunks);
                fs.appendFileSync(journal, JSON.stringify({
                  path: req.url, version: req.httpVersion, length: body.length,
                  port: req.socket.remotePort, ...req.headers}) + '\\n');
                const status = Number(req.url.split('/').pop());
                const headers = {'Content-Length': 0};
                if (status === 302) headers.Location = 'http://127.0.0.1:1/';
                res.writeHead(status, headers);
                res.end();
              });
            }).listen(Number(port), '127.0.0.1');
            """
    }

    private func world(_ service: Service) throws -> World {
        let key = try VAPIDKey(
            id: "v1", text: try KeyPair.generate(for: .es256).privateKeyPEM, setting: "test")
        let app = PushApp(
            name: "shop",
            webPush: PushApp.WebPush(
                credential: WebPushCredential(subject: "mailto:ops@example.com", keys: [key]),
                hosts: WebPushHosts(allowsLoopback: true),
                trusting: try TLSAuthorities(file: service.caFile)))
        return try World(apps: [app], lanes: 1) {}
    }

    @Test func `get their messages over HTTP/1.1, with the same verdicts`() throws {
        let service = try Service()
        let world = try world(service)
        let expected: [(status: Int, outcome: String)] = [
            (201, "accepted"), (410, "token_invalid"), (413, "rejected"), (302, "rejected"),
        ]
        for (status, _) in expected {
            try world.subscribe(
                "i\(status)", user: "u1",
                at: "https://push.localhost:\(service.port)/p/\(status)",
                with: try World.browser("i\(status)"))
        }
        try world.start()
        try world.publish(id: "e1", user: "u1", extra: #","ttl":600"#)
        try world.flush()
        let results = try world.records(of: "push.results", atLeast: expected.count)
        for (status, outcome) in expected {
            let result = try #require(results.first { $0.text("install_id") == "i\(status)" })
            #expect(result.text("outcome") == outcome, "\(result.value ?? "")")
            #expect(result.text("status") == "\(status)" && result.text("attempts") == "1")
        }
        let requests = service.requests
        #expect(requests.count == expected.count)
        for request in requests {
            let fields = try JSONParser().parse(request)
            #expect(fields["version"]?.string == "1.1")
            #expect(fields["content-encoding"]?.string == "aes128gcm")
            #expect(fields["authorization"]?.string?.hasPrefix("vapid t=") == true)
            #expect(fields["content-length"]?.string == fields["length"]?.int64.map { "\($0)" })
            #expect(fields["host"]?.string == "push.localhost:\(service.port)")
            #expect((500...600).contains(Int(fields["ttl"]?.string ?? "") ?? 0))
        }
        // One connection, kept alive.
        let ports = try requests.map { try JSONParser().parse($0)["port"]?.int64 }
        #expect(Set(ports).count == 1)
        #expect(world.stop())
    }
}
