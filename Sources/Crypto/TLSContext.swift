// What all TLS sessions of one kind share: trust, certificate, protocol versions, ALPN.

internal import COpenSSL
internal import COpenSSLShims
internal import Glibc

/// The settings that TLS sessions are made with. Immutable after creation, so any number of
/// threads may make sessions from it.
public final class TLSContext: Sendable {
    /// Owned; freed in deinit. OpenSSL counts references and locks what sessions share; nothing
    /// changes the context after init.
    internal nonisolated(unsafe) let raw: OpaquePointer
    private let offered: [UInt8]

    private init(_ raw: OpaquePointer, alpn: [String]) {
        self.raw = raw
        offered = alpn.flatMap { [UInt8($0.utf8.count)] + Array($0.utf8) }
    }

    deinit { SSL_CTX_free(raw) }

    /// A client's context: verifies chain and name against the system's trust store, and against
    /// the certificates in `caFile` (PEM) as well when there is one. Without `alpn` no protocol is
    /// negotiated.
    public static func client(
        caFile: String?, alpn: [String], identity: Identity? = nil
    ) throws(TLSError) -> TLSContext {
        try client(
            trusting: caFile.map { file throws(TLSError) in try TLSAuthorities(file: file) }
                ?? .none, alpn: alpn, identity: identity)
    }

    /// A client's context: verifies chain and name against the system's trust store, and against
    /// `authorities` as well. Without `alpn` no protocol is negotiated.
    public static func client(
        trusting authorities: TLSAuthorities, alpn: [String], identity: Identity? = nil
    ) throws(TLSError) -> TLSContext {
        let context = try make(TLS_client_method(), alpn: alpn)
        SSL_CTX_set_verify(context.raw, SSL_VERIFY_PEER, nil)
        guard SSL_CTX_set_default_verify_paths(context.raw) == 1 else {
            throw .newest(.material, "the system's trust store cannot be read")
        }
        try authorities.trust(in: context.raw)
        if let identity { try identity.show(in: context.raw) }
        guard !alpn.isEmpty else { return context }
        let result = context.offered.withUnsafeBufferPointer {
            SSL_CTX_set_alpn_protos(context.raw, $0.baseAddress, UInt32($0.count))
        }
        precondition(result == 0, "the ALPN list is malformed")
        return context
    }

    /// A server's context with a certificate (PEM, leaf first) and its key. It chooses the first
    /// of its protocols that the client offers, and none when there is none. With an authority
    /// (PEM) it asks for the client's certificate, and refuses one that is not the authority's.
    public static func server(
        certificatePEM: String, keyPEM: String, alpn: [String], clientAuthorityPEM: String? = nil
    ) throws(TLSError) -> TLSContext {
        let context = try make(TLS_server_method(), alpn: alpn)
        try context.use(certificatePEM: certificatePEM, keyPEM: keyPEM)
        if let clientAuthorityPEM { try context.askClients(trusting: clientAuthorityPEM) }
        SSL_CTX_set_alpn_select_cb(
            context.raw,
            { _, chosen, chosenLength, offered, offeredLength, opaque in
                guard let opaque, let offered, let chosen, let chosenLength else {
                    return SSL_TLSEXT_ERR_NOACK
                }
                // The context outlives its sessions' handshakes: each session retains it.
                let context = Unmanaged<TLSContext>.fromOpaque(opaque).takeUnretainedValue()
                return context.select(
                    from: UnsafeBufferPointer(start: offered, count: Int(offeredLength)),
                    chosen, chosenLength)
            }, Unmanaged.passUnretained(context).toOpaque())
        return context
    }

    private static func make(
        _ method: OpaquePointer?, alpn: [String]
    ) throws(TLSError) -> TLSContext {
        guard let raw = SSL_CTX_new(method) else {
            throw .newest(.material, "no TLS context can be made")
        }
        let context = TLSContext(raw, alpn: alpn)
        guard bugle_ssl_ctx_require_modern(raw) == 1 else {
            throw .newest(.material, "the TLS library refuses TLS 1.2 with AEAD suites")
        }
        // Partial writes: a full socket takes what it can; moving buffers: the caller's buffer
        // may be another one when the write is tried again.
        let modes = SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER
        _ = bugle_ssl_ctx_set_mode(raw, Int(modes))
        // One read call fetches all records the socket holds, not a header and a body each.
        bugle_ssl_ctx_set_read_ahead(raw)
        SSL_CTX_set_default_read_buffer_len(raw, Limits.readBuffer)
        return context
    }

    private func askClients(trusting authorityPEM: String) throws(TLSError) {
        guard let authority = Self.certificate(fromPEM: authorityPEM) else {
            throw .newest(.material, "the authority's certificate is not PEM")
        }
        defer { X509_free(authority) }
        guard X509_STORE_add_cert(SSL_CTX_get_cert_store(raw), authority) == 1,
            SSL_CTX_add_client_CA(raw, authority) == 1
        else { throw .newest(.material, "the authority's certificate cannot be used") }
        // A name for sessions, without which OpenSSL refuses to ask.
        SSL_CTX_set_session_id_context(raw, "bugle", 5)
        SSL_CTX_set_verify(raw, SSL_VERIFY_PEER, nil)
    }

    private func use(certificatePEM: String, keyPEM: String) throws(TLSError) {
        guard let certificate = Self.certificate(fromPEM: certificatePEM) else {
            throw .newest(.material, "the certificate is not PEM")
        }
        defer { X509_free(certificate) }
        let key = try Self.key(fromPEM: keyPEM, "the certificate's key cannot be used")
        defer { EVP_PKEY_free(key) }
        guard SSL_CTX_use_certificate(raw, certificate) == 1,
            SSL_CTX_use_PrivateKey(raw, key) == 1
        else { throw .newest(.material, "the certificate and its key do not belong together") }
    }

    private func select(
        from offered: UnsafeBufferPointer<UInt8>,
        _ chosen: UnsafeMutablePointer<UnsafePointer<UInt8>?>,
        _ chosenLength: UnsafeMutablePointer<UInt8>
    ) -> Int32 {
        self.offered.withUnsafeBufferPointer { mine in
            var output: UnsafeMutablePointer<UInt8>?
            let result = SSL_select_next_proto(
                &output, chosenLength, mine.baseAddress, UInt32(mine.count),
                offered.baseAddress, UInt32(offered.count))
            guard result == OPENSSL_NPN_NEGOTIATED, let output else { return SSL_TLSEXT_ERR_NOACK }
            // `output` points into one of both lists. Ours may not outlive this closure's borrow,
            // so the client's copy of the same name is handed out.
            let name = UnsafeBufferPointer(start: output, count: Int(chosenLength.pointee))
            var index = 0
            while index < offered.count {
                let length = Int(offered[index])
                let candidate = UnsafeBufferPointer(
                    rebasing: offered[(index + 1)..<(index + 1 + length)])
                if candidate.elementsEqual(name) {
                    chosen.pointee = candidate.baseAddress
                    return SSL_TLSEXT_ERR_OK
                }
                index += 1 + length
            }
            return SSL_TLSEXT_ERR_NOACK
        }
    }

    internal static func certificate(fromPEM pem: String) -> OpaquePointer? {
        withBIO(pem) { PEM_read_bio_X509($0, nil, noPassphrase, nil) }
    }

    /// To be freed by the caller; `attempt` is what an error begins with.
    internal static func key(
        fromPEM pem: String, _ attempt: String
    ) throws(TLSError) -> OpaquePointer {
        // PKCS#8 says so in its label, the traditional forms in a header (RFC 1421, section 4.6).
        let marks = ["-----BEGIN ENCRYPTED PRIVATE KEY-----", "Proc-Type: 4,ENCRYPTED"]
        guard !marks.contains(where: { pem.contains($0) }) else {
            throw TLSError(
                .material, "\(attempt): it is encrypted with a passphrase; store it decrypted")
        }
        guard let key = withBIO(pem, { PEM_read_bio_PrivateKey($0, nil, noPassphrase, nil) }) else {
            throw .newest(.material, attempt)
        }
        return key
    }

    private static func withBIO(_ pem: String, _ read: (OpaquePointer) -> OpaquePointer?)
        -> OpaquePointer?
    {
        var pem = pem
        return pem.withUTF8 { text in
            guard let bio = BIO_new_mem_buf(text.baseAddress, Int32(text.count)) else { return nil }
            defer { BIO_free(bio) }
            return read(bio)
        }
    }

    private enum Limits {
        /// Bytes read ahead per session: four full records (RFC 8446, section 5.1).
        static let readBuffer = 4 * (16_384 + 256 + 5)
    }
}

/// What OpenSSL asks for the passphrase of a block in PEM: there is none. Without this it would ask
/// at the terminal, and wait for an answer.
internal func noPassphrase(
    _ buffer: UnsafeMutablePointer<CChar>?, _ size: Int32, _ isWriting: Int32,
    _ context: UnsafeMutableRawPointer?
) -> Int32 { -1 }
