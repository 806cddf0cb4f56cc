// A private certificate authority in memory: for the demo, for development and for tests, so
// that they speak real, verified TLS without files that anybody has to make.

internal import COpenSSL
internal import Glibc

/// Issues certificates for private names. Its key never leaves memory.
public final class CertificateAuthority {
    private let key: OpaquePointer
    private let certificate: OpaquePointer
    private var serial: Int = 1

    /// A new authority, valid for a year.
    public init() throws(TLSError) {
        guard let key = Self.newKey() else { throw .newest(.material, "no key can be made") }
        do throws(TLSError) {
            certificate = try Self.certificate(
                name: "Bugle private CA", serial: 1, key: key, signer: nil,
                extensions: [
                    (NID_basic_constraints, "critical,CA:TRUE"),
                    (NID_key_usage, "critical,keyCertSign,cRLSign"),
                    (NID_subject_key_identifier, "hash"),
                ])
        } catch {
            EVP_PKEY_free(key)
            throw error
        }
        self.key = key
    }

    deinit {
        X509_free(certificate)
        EVP_PKEY_free(key)
    }

    /// The authority's certificate, to be trusted by clients.
    public var certificatePEM: String { Self.pem { PEM_write_bio_X509($0, certificate) } }

    /// A certificate for host names and numeric addresses, with its key.
    public func issue(
        hosts: [String]
    ) throws(TLSError) -> (certificatePEM: String, keyPEM: String) {
        guard let leafKey = Self.newKey() else { throw .newest(.material, "no key can be made") }
        defer { EVP_PKEY_free(leafKey) }
        serial += 1
        let names = hosts.map { Self.isNumeric($0) ? "IP:\($0)" : "DNS:\($0)" }
        let leaf = try Self.certificate(
            name: hosts.first ?? "localhost", serial: serial, key: leafKey,
            signer: (certificate, key),
            extensions: [
                (NID_basic_constraints, "critical,CA:FALSE"),
                (NID_subject_alt_name, names.joined(separator: ",")),
                (NID_ext_key_usage, "serverAuth,clientAuth"),
            ])
        defer { X509_free(leaf) }
        return (
            Self.pem { PEM_write_bio_X509($0, leaf) },
            Self.pem { PEM_write_bio_PrivateKey($0, leafKey, nil, nil, 0, nil, nil) }
        )
    }

    /// A client's certificate as Apple issues them for pushes: the bundle id as subject `UID`, the
    /// topics in Apple's extension.
    public func issuePushCertificate(
        bundleID: String, topics: [String], isForSandboxOnly: Bool = false
    ) throws(TLSError) -> (certificatePEM: String, keyPEM: String) {
        guard let leafKey = Self.newKey() else { throw .newest(.material, "no key can be made") }
        defer { EVP_PKEY_free(leafKey) }
        serial += 1
        // Behind each topic Apple puts a sequence of what it is for.
        let names = topics.flatMap { Self.der(0x0C, Array($0.utf8)) + Self.der(0x30, []) }
        let marks = isForSandboxOnly ? ["1"] : ["1", "2"]
        let leaf = try Self.certificate(
            name: "Apple Push Services: \(bundleID)", userID: bundleID, serial: serial,
            key: leafKey, signer: (certificate, key),
            extensions: [
                (NID_basic_constraints, "critical,CA:FALSE"), (NID_ext_key_usage, "clientAuth"),
            ],
            others: [("1.2.840.113635.100.6.3.6", Self.der(0x30, names))]
                + marks.map { ("1.2.840.113635.100.6.3.\($0)", [5, 0]) })
        defer { X509_free(leaf) }
        return (
            Self.pem { PEM_write_bio_X509($0, leaf) },
            Self.pem { PEM_write_bio_PrivateKey($0, leafKey, nil, nil, 0, nil, nil) }
        )
    }

    /// A DER element of less than 64 KiB.
    private static func der(_ tag: UInt8, _ content: [UInt8]) -> [UInt8] {
        let count = content.count
        let length: [UInt8] =
            count < 0x80
            ? [UInt8(count)] : [0x82, UInt8(count >> 8 & 0xFF), UInt8(count & 0xFF)]
        return [tag] + length + content
    }

    private static func newKey() -> OpaquePointer? {
        guard let context = EVP_PKEY_CTX_new_id(EVP_PKEY_EC, nil) else { return nil }
        defer { EVP_PKEY_CTX_free(context) }
        var key: OpaquePointer?
        guard EVP_PKEY_keygen_init(context) == 1,
            EVP_PKEY_CTX_set_ec_paramgen_curve_nid(context, NID_X9_62_prime256v1) == 1,
            EVP_PKEY_generate(context, &key) == 1
        else { return nil }
        return key
    }

    private static func certificate(
        name: String, userID: String? = nil, serial: Int, key: OpaquePointer,
        signer: (certificate: OpaquePointer, key: OpaquePointer)?,
        extensions: [(nid: Int32, value: String)],
        others: [(name: String, value: [UInt8])] = []
    ) throws(TLSError) -> OpaquePointer {
        guard let certificate = X509_new() else { throw .newest(.material, "out of memory") }
        X509_set_version(certificate, 2)
        ASN1_INTEGER_set(X509_get_serialNumber(certificate), serial)
        // An hour of grace, for clocks that differ a little.
        X509_gmtime_adj(X509_getm_notBefore(certificate), -3600)
        X509_gmtime_adj(X509_getm_notAfter(certificate), 365 * 86_400)
        X509_set_pubkey(certificate, key)
        let subject = X509_get_subject_name(certificate)
        let text = Array(name.utf8)
        X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8, text, Int32(text.count), -1, 0)
        if let userID {
            let text = Array(userID.utf8)
            X509_NAME_add_entry_by_NID(
                subject, NID_userId, MBSTRING_UTF8, text, Int32(text.count), -1, 0)
        }
        let issuer = signer?.certificate ?? certificate
        X509_set_issuer_name(certificate, X509_get_subject_name(issuer))
        for (nid, value) in extensions {
            var context = X509V3_CTX()
            X509V3_set_ctx(&context, issuer, certificate, nil, nil, 0)
            let made = X509V3_EXT_conf_nid(nil, &context, nid, value)
            X509_add_ext(certificate, made, -1)
            X509_EXTENSION_free(made)
        }
        for (name, value) in others {
            let object = OBJ_txt2obj(name, 1)
            let data = ASN1_OCTET_STRING_new()
            ASN1_OCTET_STRING_set(data, value, Int32(value.count))
            let made = X509_EXTENSION_create_by_OBJ(nil, object, 0, data)
            X509_add_ext(certificate, made, -1)
            X509_EXTENSION_free(made)
            ASN1_OCTET_STRING_free(data)
            ASN1_OBJECT_free(object)
        }
        guard X509_sign(certificate, signer?.key ?? key, EVP_sha256()) > 0 else {
            X509_free(certificate)
            throw .newest(.material, "the certificate cannot be signed")
        }
        return certificate
    }

    private static func isNumeric(_ host: String) -> Bool {
        let address = a2i_IPADDRESS(host)
        ASN1_OCTET_STRING_free(address)
        ERR_clear_error()
        return address != nil
    }

    private static func pem(_ write: (OpaquePointer) -> Int32) -> String {
        guard let bio = BIO_new(BIO_s_mem()) else { return "" }
        defer { BIO_free(bio) }
        guard write(bio) == 1 else { return "" }
        var text = [UInt8](repeating: 0, count: BIO_ctrl_pending(bio))
        let count = BIO_read(bio, &text, Int32(text.count))
        return String(decoding: text.prefix(Int(max(count, 0))), as: UTF8.self)
    }
}

private let MBSTRING_UTF8: Int32 = 0x1000
