// What TLS contexts are made of, read from files once: a file may change under a process that has
// tried what it held before, and nothing that was not tried may serve.

internal import Base
internal import COpenSSL
internal import Glibc

/// Authorities to trust besides the system's, as their files held them.
public struct TLSAuthorities: Sendable, Hashable {
    /// No others than the system's.
    public static let none = TLSAuthorities()

    /// The text of each file, in PEM.
    private var texts: [String] = []

    private init() {}

    /// The certificates of one file.
    public init(file: String) throws(TLSError) { try add(file) }

    /// Adds what a file holds: one certificate or more in PEM. Throws when it cannot be read, is
    /// not whole, or holds none.
    public mutating func add(_ file: String) throws(TLSError) {
        let attempt = "the CA file \(file) cannot be used"
        let text = try PEMText.read(file, attempt)
        try PEMText.withCertificates(in: text, attempt) { _ in }
        if !texts.contains(text) { texts.append(text) }
    }

    internal func trust(in context: OpaquePointer) throws(TLSError) {
        for text in texts {
            let attempt = "an authority's certificate cannot be used"
            try PEMText.withCertificates(in: text, attempt) { (all) throws(TLSError) in
                for certificate in all
                where X509_STORE_add_cert(SSL_CTX_get_cert_store(context), certificate) != 1 {
                    throw .newest(.material, attempt)
                }
            }
        }
    }
}

extension TLSContext {
    /// The certificate that a client shows to servers that ask for one, as its files held it.
    public struct Identity: Sendable {
        private let certificates: String
        private let key: Secret<String>
        private let certificateFile: String
        private let keyFile: String

        /// Reads a certificate, followed by what leads from it to the authority, and its private
        /// key without a password, both in PEM; throws when they do not belong together.
        public init(certificateFile: String, keyFile: String) throws(TLSError) {
            self.certificateFile = certificateFile
            self.keyFile = keyFile
            certificates = try PEMText.read(
                certificateFile, "the certificate file \(certificateFile) cannot be used")
            key = Secret(try PEMText.read(keyFile, "the key file \(keyFile) cannot be used"))
            try withChain { (all) throws(TLSError) in
                EVP_PKEY_free(try privateKey(of: all[0]))
            }
        }

        /// What the certificate says about itself, as one of Apple's push service.
        internal func pushCertificate() throws(TLSError) -> PushCertificate {
            try withChain { PushCertificate($0[0]) }
        }

        internal func show(in context: OpaquePointer) throws(TLSError) {
            let attempt = "the certificate in \(certificateFile) cannot be used"
            try withChain { (all) throws(TLSError) in
                guard SSL_CTX_use_certificate(context, all[0]) == 1 else {
                    throw .newest(.material, attempt)
                }
                for certificate in all.dropFirst() {
                    // 1: the context keeps a reference of its own.
                    let added = SSL_CTX_ctrl(
                        context, SSL_CTRL_CHAIN_CERT, 1, UnsafeMutableRawPointer(certificate))
                    guard added == 1 else { throw .newest(.material, attempt) }
                }
                let key = try privateKey(of: all[0])
                defer { EVP_PKEY_free(key) }
                guard SSL_CTX_use_PrivateKey(context, key) == 1 else {
                    throw .newest(.material, "the key in \(keyFile) cannot be used")
                }
            }
        }

        private func withChain<Value>(
            _ body: ([OpaquePointer]) throws(TLSError) -> Value
        ) throws(TLSError) -> Value {
            try PEMText.withCertificates(
                in: certificates, "the certificate file \(certificateFile) cannot be used", body)
        }

        /// To be freed by the caller.
        private func privateKey(of certificate: OpaquePointer) throws(TLSError) -> OpaquePointer {
            let key = try TLSContext.key(
                fromPEM: key.exposed, "the key file \(keyFile) cannot be used")
            guard X509_check_private_key(certificate, key) == 1 else {
                EVP_PKEY_free(key)
                ERR_clear_error()
                throw TLSError(
                    .material,
                    "the key in \(keyFile) does not belong to the certificate in "
                        + certificateFile)
            }
            return key
        }
    }
}

/// Files of certificates and keys.
private enum PEMText {
    /// Larger files are none: a bundle of all public authorities has some 200 KiB.
    static let bytesMax = 4 << 20

    static func read(_ path: String, _ attempt: String) throws(TLSError) -> String {
        let fd = open(path, O_RDONLY | O_CLOEXEC)
        guard fd >= 0 else { throw failure(attempt) }
        defer { close(fd) }
        var bytes: [UInt8] = []
        var chunk = [UInt8](repeating: 0, count: 16 << 10)
        while true {
            let count = Glibc.read(fd, &chunk, chunk.count)
            if count < 0 && errno == EINTR { continue }
            guard count >= 0 else { throw failure(attempt) }
            if count == 0 { return String(decoding: bytes, as: UTF8.self) }
            bytes += chunk[..<count]
            guard bytes.count <= bytesMax else {
                throw TLSError(.material, "\(attempt): it is larger than \(bytesMax >> 20) MiB")
            }
        }
    }

    private static func failure(_ attempt: String) -> TLSError {
        TLSError(.material, "\(attempt): \(String(cString: strerror(errno)))")
    }

    /// Lends all certificates of a text, at least one.
    static func withCertificates<Value>(
        in text: String, _ attempt: String,
        _ body: ([OpaquePointer]) throws(TLSError) -> Value
    ) throws(TLSError) -> Value {
        var all: [OpaquePointer] = []
        defer { for certificate in all { X509_free(certificate) } }
        var text = text
        let end = text.withUTF8 { text -> UInt in
            guard let bio = BIO_new_mem_buf(text.baseAddress, Int32(text.count)) else { return 0 }
            defer { BIO_free(bio) }
            while let certificate = PEM_read_bio_X509(bio, nil, noPassphrase, nil) {
                all.append(certificate)
            }
            return ERR_peek_last_error()
        }
        // Reading ends where no further block begins; any other end is a block that is not whole.
        guard ERR_GET_REASON(end) == PEM_R_NO_START_LINE else { throw .newest(.material, attempt) }
        ERR_clear_error()
        guard !all.isEmpty else {
            throw TLSError(.material, "\(attempt): it holds no certificate in PEM")
        }
        return try body(all)
    }
}
