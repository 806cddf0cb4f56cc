internal import COpenSSL

/// The library behind this room.
public enum CryptoLibrary {
    /// Its name and version as it is loaded, for example `OpenSSL 3.0.17 1 Jul 2025`.
    public static var version: String { String(cString: OpenSSL_version(OPENSSL_VERSION)) }
}
