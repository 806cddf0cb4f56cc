import Crypto
import Glibc
import Testing

/// Two ends of a connected pair of non-blocking sockets.
private final class SocketPair {
    let client: Int32
    let server: Int32

    init() {
        var ends: [Int32] = [0, 0]
        socketpair(AF_UNIX, Int32(SOCK_STREAM.rawValue | SOCK_NONBLOCK.rawValue), 0, &ends)
        (client, server) = (ends[0], ends[1])
    }

    deinit {
        close(client)
        close(server)
    }
}

/// A client and a server session over one pair, with the handshake taken as far as it goes.
private struct Handshake {
    let sockets = SocketPair()
    let client: TLSSession
    let server: TLSSession
    let clientEnd: TLSProgress
    let serverEnd: TLSProgress

    init(
        hostName: String, certifiedFor hosts: [String], trusting trusted: CertificateAuthority?,
        clientALPN: [String] = ["h2"], serverALPN: [String] = ["h2"]
    ) throws {
        let authority = try CertificateAuthority()
        let leaf = try authority.issue(hosts: hosts)
        let path = "/tmp/bugle-ca-\(getpid())-\(UInt64.random(in: 0...UInt64.max)).pem"
        try (trusted ?? authority).certificatePEM.write(to: path)
        defer { unlink(path) }
        client = try TLSSession(
            client: .client(caFile: path, alpn: clientALPN), fd: sockets.client,
            hostName: hostName)
        server = try TLSSession(
            server: .server(
                certificatePEM: leaf.certificatePEM, keyPEM: leaf.keyPEM, alpn: serverALPN),
            fd: sockets.server)
        var ends: (TLSProgress, TLSProgress) = (.wantsRead, .wantsRead)
        for _ in 0..<6 {
            if ends.0 == .wantsRead { ends.0 = client.handshake() }
            if ends.1 == .wantsRead { ends.1 = server.handshake() }
        }
        (clientEnd, serverEnd) = ends
    }
}

extension String {
    fileprivate func write(to path: String) throws {
        let file = try #require(fopen(path, "w"))
        fputs(self, file)
        fclose(file)
    }
}

@Suite struct `TLS sessions` {
    @Test func `a verified session carries bytes both ways`() throws {
        let pair = try Handshake(
            hostName: "localhost", certifiedFor: ["localhost"], trusting: nil)
        #expect(pair.clientEnd == .done)
        #expect(pair.serverEnd == .done)
        #expect(pair.client.negotiatedProtocol == "h2")
        #expect(pair.server.negotiatedProtocol == "h2")
        let sent: [UInt8] = Array("hello".utf8)
        #expect(sent.withUnsafeBytes { pair.client.write($0) } == .count(5))
        var buffer = [UInt8](repeating: 0, count: 16)
        #expect(buffer.withUnsafeMutableBytes { pair.server.read(into: $0) } == .count(5))
        #expect(Array(buffer.prefix(5)) == sent)
        #expect(buffer.withUnsafeMutableBytes { pair.server.read(into: $0) } == .wantsRead)
        pair.client.close()
        #expect(buffer.withUnsafeMutableBytes { pair.server.read(into: $0) } == .closed)
    }

    @Test func `a numeric address is verified as an address`() throws {
        let pair = try Handshake(
            hostName: "127.0.0.1", certifiedFor: ["127.0.0.1"], trusting: nil)
        #expect(pair.clientEnd == .done)
    }

    @Test func `a certificate for another name is refused`() throws {
        let pair = try Handshake(
            hostName: "api.example.com", certifiedFor: ["localhost"], trusting: nil)
        guard case .failed(let error) = pair.clientEnd else {
            Issue.record("accepted another name")
            return
        }
        #expect(error.kind == .verification)
        #expect(error.text.contains("hostname mismatch"))
    }

    @Test func `a certificate of an unknown authority is refused`() throws {
        let pair = try Handshake(
            hostName: "localhost", certifiedFor: ["localhost"],
            trusting: try CertificateAuthority())
        guard case .failed(let error) = pair.clientEnd else {
            Issue.record("accepted an unknown authority")
            return
        }
        #expect(error.kind == .verification)
    }

    @Test func `without a common protocol ALPN stays empty`() throws {
        let pair = try Handshake(
            hostName: "localhost", certifiedFor: ["localhost"], trusting: nil,
            serverALPN: ["http/1.1"])
        #expect(pair.clientEnd == .done)
        #expect(pair.client.negotiatedProtocol == nil)
    }

    /// Run under the memory checker too: the session was freed twice.
    @Test func `a name that no server can have is refused, and nothing is freed twice`() throws {
        let context = try TLSContext.client(caFile: nil, alpn: ["h2"])
        let sockets = SocketPair()
        for name in ["", String(repeating: "a", count: 256)] {
            for _ in 0..<100 {
                let error = try #require(throws: TLSError.self) {
                    _ = try TLSSession(client: context, fd: sockets.client, hostName: name)
                }
                #expect(error.kind == .material)
                #expect(error.text.contains("cannot be used as a TLS server name"))
            }
        }
        // What was freed twice would be handed out twice.
        let sessions = try (0..<4).map { _ in
            try TLSSession(client: context, fd: sockets.client, hostName: "localhost")
        }
        #expect(sessions.allSatisfy { $0.negotiatedProtocol == nil })
    }

    @Test func `an encrypted key is refused with the reason, nobody is asked to open it`()
        throws
    {
        let leaf = try CertificateAuthority().issue(hosts: ["localhost"])
        let path = "/tmp/bugle-key-\(getpid())-\(UInt64.random(in: 0...UInt64.max)).pem"
        try leaf.certificatePEM.write(to: path + ".crt")
        defer {
            unlink(path)
            unlink(path + ".crt")
        }
        for key in [
            "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
            "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n"
                + "DEK-Info: AES-128-CBC,470E6A29D2DE4590DF476A56F5FC34B0\n\n"
                + "AAAA\n-----END EC PRIVATE KEY-----\n",
        ] {
            try key.write(to: path)
            let words = "it is encrypted with a passphrase; store it decrypted"
            let error = TLSError(.material, "the key file \(path) cannot be used: \(words)")
            #expect(throws: error) {
                _ = try TLSContext.Identity(certificateFile: path + ".crt", keyFile: path)
            }
            #expect(
                throws: TLSError(.material, "the certificate's key cannot be used: \(words)")
            ) {
                _ = try TLSContext.server(
                    certificatePEM: leaf.certificatePEM, keyPEM: key, alpn: [])
            }
        }
    }

    @Test func `a missing CA file is a configuration fault that names the file`() throws {
        let error = try #require(throws: TLSError.self) {
            _ = try TLSContext.client(caFile: "/nonexistent/ca.pem", alpn: ["h2"])
        }
        #expect(error.kind == .material)
        #expect(error.text.contains("/nonexistent/ca.pem"))
    }
}
