// One TLS connection over a non-blocking socket. The session reads and writes the descriptor
// itself; the caller owns it, watches it and closes it after `close()`.

internal import COpenSSL
internal import COpenSSLShims
internal import Glibc

/// How far a handshake has come.
public enum TLSProgress: Equatable, Sendable {
    /// Application data may flow.
    case done
    /// Continue when the descriptor can be read.
    case wantsRead
    /// Continue when the descriptor can be written.
    case wantsWrite
    /// The handshake failed.
    case failed(TLSError)
}

/// What came of reading or writing application data.
public enum TLSResult: Equatable, Sendable {
    /// This many bytes, at least one.
    case count(Int)
    /// Continue when the descriptor can be read.
    case wantsRead
    /// Continue when the descriptor can be written.
    case wantsWrite
    /// The peer has closed the connection.
    case closed
    /// The connection is broken.
    case failed(TLSError)
}

/// A TLS session, client's or server's side. Confined to its loop.
///
/// Reading: with read-ahead, decrypted or buffered bytes may wait inside the session although the
/// descriptor is not readable, so a reader goes on until `wantsRead`.
public final class TLSSession {
    private let raw: OpaquePointer
    private let context: TLSContext
    private var isBroken = false

    /// A client's session: sends the host name (SNI) and verifies the certificate against it. With
    /// `protocolOnly` it offers that protocol, and no other that the context has.
    public init(
        client context: TLSContext, fd: Int32, hostName: String, protocolOnly: String? = nil
    ) throws(TLSError) {
        self.context = context
        raw = try Self.make(context, fd)
        guard Self.expect(hostName, in: raw) else {
            // All that is stored is there: `deinit` frees the session.
            throw .newest(.material, "\(hostName) cannot be used as a TLS server name")
        }
        if let protocolOnly {
            let offered = [UInt8(protocolOnly.utf8.count)] + Array(protocolOnly.utf8)
            let result = offered.withUnsafeBufferPointer {
                SSL_set_alpn_protos(raw, $0.baseAddress, UInt32($0.count))
            }
            precondition(result == 0, "the ALPN list is malformed")
        }
        SSL_set_connect_state(raw)
    }

    /// A server's session.
    public init(server context: TLSContext, fd: Int32) throws(TLSError) {
        self.context = context
        raw = try Self.make(context, fd)
        SSL_set_accept_state(raw)
    }

    deinit { SSL_free(raw) }

    private static func make(_ context: TLSContext, _ fd: Int32) throws(TLSError) -> OpaquePointer {
        guard let raw = SSL_new(context.raw), SSL_set_fd(raw, fd) == 1 else {
            throw .newest(.material, "no TLS session can be made")
        }
        return raw
    }

    /// SNI carries names only (RFC 6066, section 3); a numeric address is verified as such.
    private static func expect(_ hostName: String, in raw: OpaquePointer) -> Bool {
        let parameters = SSL_get0_param(raw)
        if X509_VERIFY_PARAM_set1_ip_asc(parameters, hostName) == 1 { return true }
        ERR_clear_error()
        return SSL_set1_host(raw, hostName) == 1 && bugle_ssl_set_server_name(raw, hostName) == 1
    }

    /// Takes the handshake as far as the descriptor allows.
    public func handshake() -> TLSProgress {
        ERR_clear_error()
        let result = SSL_do_handshake(raw)
        if result == 1 { return .done }
        switch SSL_get_error(raw, result) {
        case SSL_ERROR_WANT_READ: return .wantsRead
        case SSL_ERROR_WANT_WRITE: return .wantsWrite
        default: return .failed(handshakeError())
        }
    }

    /// The protocol that ALPN settled on (RFC 7301), once the handshake is done.
    public var negotiatedProtocol: String? {
        var name: UnsafePointer<UInt8>?
        var length: UInt32 = 0
        SSL_get0_alpn_selected(raw, &name, &length)
        guard let name, length > 0 else { return nil }
        return String(
            decoding: UnsafeBufferPointer(start: name, count: Int(length)), as: UTF8.self)
    }

    /// The push certificate that the peer has shown; nil without one.
    public var peerPushCertificate: PushCertificate? {
        guard let certificate = SSL_get1_peer_certificate(raw) else { return nil }
        defer { X509_free(certificate) }
        return PushCertificate(certificate)
    }

    /// Reads decrypted bytes.
    public func read(into buffer: UnsafeMutableRawBufferPointer) -> TLSResult {
        if isBroken { return .closed }
        ERR_clear_error()
        var count = 0
        let result = SSL_read_ex(raw, buffer.baseAddress, buffer.count, &count)
        return result == 1 ? .count(count) : failure(result, "read")
    }

    /// Encrypts and writes at most one record's worth of bytes.
    public func write(_ bytes: UnsafeRawBufferPointer) -> TLSResult {
        if isBroken { return .closed }
        if bytes.isEmpty { return .count(0) }
        ERR_clear_error()
        var count = 0
        let result = SSL_write_ex(raw, bytes.baseAddress, bytes.count, &count)
        return result == 1 ? .count(count) : failure(result, "write")
    }

    /// Says goodbye if the connection still works; does not wait for the answer.
    public func close() {
        guard !isBroken, SSL_is_init_finished(raw) == 1 else { return }
        isBroken = true
        ERR_clear_error()
        SSL_shutdown(raw)
        ERR_clear_error()
    }

    private func failure(_ result: Int32, _ attempted: String) -> TLSResult {
        let code = errno
        switch SSL_get_error(raw, result) {
        case SSL_ERROR_WANT_READ: return .wantsRead
        case SSL_ERROR_WANT_WRITE: return .wantsWrite
        case SSL_ERROR_ZERO_RETURN: return .closed
        case SSL_ERROR_SYSCALL where code == 0 || code == ECONNRESET || code == EPIPE:
            isBroken = true
            return .closed
        case SSL_ERROR_SYSCALL:
            isBroken = true
            return .failed(
                TLSError(.connection, "\(attempted): \(String(cString: strerror(code)))"))
        default:
            // A peer that closes without close_notify is what most gateways do on a restart.
            let isUncleanEnd = ERR_GET_REASON(ERR_peek_last_error()) == SSL_R_UNEXPECTED_EOF
            isBroken = true
            if isUncleanEnd {
                ERR_clear_error()
                return .closed
            }
            // With TLS 1.3 a server's word on our certificate comes after the handshake.
            return .failed(
                .newest(kindOfNewest, "TLS \(attempted) failed"))
        }
    }

    private func handshakeError() -> TLSError {
        isBroken = true
        let verification = SSL_get_verify_result(raw)
        if verification != X509_V_OK {
            ERR_clear_error()
            let reason = X509_verify_cert_error_string(verification).map { String(cString: $0) }
            return TLSError(
                .verification, "the peer's certificate was refused: \(reason ?? "unknown reason")")
        }
        return .newest(kindOfNewest, "the TLS handshake failed")
    }

    /// What the newest error is. Alerts arrive as reasons 1000 + the alert's number (RFC 8446,
    /// section 6). To one that has shown a certificate, bad_certificate to unknown_ca, access_denied
    /// and decrypt_error (a signature that does not fit) are words on it.
    private var kindOfNewest: TLSError.Kind {
        let reason = ERR_GET_REASON(ERR_peek_last_error())
        guard (1000..<1256).contains(reason) else { return .connection }
        switch reason - 1000 {
        case 42...46, 48, 49, 51:
            return SSL_get_certificate(raw) == nil ? .refused : .ownCertificate
        default: return .refused
        }
    }
}

/// OpenSSL's `SSL_R_UNEXPECTED_EOF_WHILE_READING`.
private let SSL_R_UNEXPECTED_EOF: Int32 = 294
