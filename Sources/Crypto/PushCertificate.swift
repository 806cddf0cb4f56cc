// A client certificate of Apple's push service: which app it speaks for, and with which topics.

internal import COpenSSL
internal import Glibc

/// What a push certificate says about itself.
public struct PushCertificate: Sendable, Equatable {
    /// The subject's `UID`: the app's bundle id.
    public let bundleID: String?
    /// The topics that it may send to: those of Apple's extension 1.2.840.113635.100.6.3.6, else
    /// the bundle id.
    public let topics: [String]
    /// Whether it is one for the sandbox alone (extension 1.2.840.113635.100.6.3.1 without
    /// 1.2.840.113635.100.6.3.2).
    public let isForSandboxOnly: Bool
    /// Tells it from others: the start of its SHA-256, in hex.
    public let fingerprint: String

    /// Reads what the certificate of an identity says.
    public init(of identity: TLSContext.Identity) throws(TLSError) {
        self = try identity.pushCertificate()
    }

    internal init(_ certificate: OpaquePointer) {
        bundleID = Self.userID(of: certificate)
        let listed =
            Self.extensionBytes("1.2.840.113635.100.6.3.6", of: certificate)
            .map { DERStrings.ofSequence($0) } ?? []
        topics = listed.isEmpty ? bundleID.map { [$0] } ?? [] : listed
        isForSandboxOnly =
            Self.extensionBytes("1.2.840.113635.100.6.3.1", of: certificate) != nil
            && Self.extensionBytes("1.2.840.113635.100.6.3.2", of: certificate) == nil
        var digest = [UInt8](repeating: 0, count: 32)
        var length: UInt32 = 32
        X509_digest(certificate, EVP_sha256(), &digest, &length)
        fingerprint = SHA256Digest(of: digest).shortHex
    }

    private static func userID(of certificate: OpaquePointer) -> String? {
        let subject = X509_get_subject_name(certificate)
        let index = X509_NAME_get_index_by_NID(subject, NID_userId, -1)
        guard index >= 0, let entry = X509_NAME_get_entry(subject, index),
            let value = X509_NAME_ENTRY_get_data(entry)
        else { return nil }
        let text = String(decoding: bytes(of: value), as: UTF8.self)
        return text.isEmpty ? nil : text
    }

    /// The value of an extension; nil when the certificate does not have it.
    private static func extensionBytes(
        _ name: StaticString, of certificate: OpaquePointer
    ) -> [UInt8]? {
        let text = UnsafeRawPointer(name.utf8Start).assumingMemoryBound(to: CChar.self)
        guard let object = OBJ_txt2obj(text, 1) else { return nil }
        defer { ASN1_OBJECT_free(object) }
        let index = X509_get_ext_by_OBJ(certificate, object, -1)
        guard index >= 0, let found = X509_get_ext(certificate, index),
            let value = X509_EXTENSION_get_data(found)
        else { return nil }
        return bytes(of: value)
    }

    private static func bytes(of value: UnsafeMutablePointer<ASN1_STRING>) -> [UInt8] {
        let count = Int(ASN1_STRING_length(value))
        guard count > 0, let start = ASN1_STRING_get0_data(value) else { return [] }
        return Array(UnsafeBufferPointer(start: start, count: count))
    }
}

/// The strings that stand directly in a DER sequence; what is nested is passed over.
private enum DERStrings {
    static func ofSequence(_ bytes: [UInt8]) -> [String] {
        guard let (tag, content, _) = element(of: bytes[...]), tag == 0x30 else { return [] }
        var strings: [String] = []
        var rest = content
        while let (tag, content, after) = element(of: rest) {
            // UTF8String, IA5String and PrintableString.
            if [0x0C, 0x16, 0x13].contains(tag) {
                strings.append(String(decoding: content, as: UTF8.self))
            }
            rest = after
        }
        return strings
    }

    private static func element(
        of bytes: ArraySlice<UInt8>
    ) -> (tag: UInt8, content: ArraySlice<UInt8>, rest: ArraySlice<UInt8>)? {
        guard bytes.count >= 2, let tag = bytes.first else { return nil }
        var index = bytes.startIndex + 1
        var length = Int(bytes[index])
        index += 1
        if length >= 0x80 {
            let digits = length & 0x7F
            guard (1...3).contains(digits), bytes.endIndex - index >= digits else { return nil }
            length = bytes[index..<index + digits].reduce(0) { $0 << 8 | Int($1) }
            index += digits
        }
        guard bytes.endIndex - index >= length else { return nil }
        return (tag, bytes[index..<index + length], bytes[(index + length)...])
    }
}
