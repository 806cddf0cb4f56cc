public import Base
internal import COpenSSL
internal import Glibc

/// When certificates end, for whoever has to renew them in time.
public enum CertificateExpiry {
    /// How long the first certificate of a PEM file still holds, in whole seconds, negative when it
    /// has ended; nil when the file cannot be read or holds none.
    public static func timeLeft(path: String) -> TimeSpan? {
        guard let bio = BIO_new_file(path, "r") else {
            ERR_clear_error()
            return nil
        }
        defer { BIO_free(bio) }
        guard let certificate = PEM_read_bio_X509(bio, nil, noPassphrase, nil) else {
            ERR_clear_error()
            return nil
        }
        defer { X509_free(certificate) }
        var days: Int32 = 0
        var seconds: Int32 = 0
        // Without a start the difference is from now.
        guard ASN1_TIME_diff(&days, &seconds, nil, X509_get0_notAfter(certificate)) == 1 else {
            ERR_clear_error()
            return nil
        }
        return .seconds(Int64(days) * 86_400 + Int64(seconds))
    }
}
