// Arithmetic on the curve P-256 for key agreement: one multiplication of the generator for a fresh
// key, one of the peer's point for the shared secret, nothing else. The generic key objects of the
// library would double the cost of a message.

internal import COpenSSL

/// The curve, its scratch memory and a random scalar at a time. Confined to one thread.
internal final class P256Agreement {
    /// Bytes of a coordinate, and of the shared secret.
    static let coordinateBytes = 32
    /// Bytes of an uncompressed point: a four, X and Y (SEC 1, section 2.3.3).
    static let pointBytes = 65

    /// The curve; immutable, so that all threads share it.
    nonisolated(unsafe) static let group = EC_GROUP_new_by_curve_name(NID_X9_62_prime256v1)

    private let context: OpaquePointer
    private let point: OpaquePointer
    private let scalar: OpaquePointer
    private let coordinate: OpaquePointer

    init() throws(OpenSSLError) {
        ERR_clear_error()
        guard let group = Self.group, let context = BN_CTX_new(), let point = EC_POINT_new(group),
            let scalar = BN_secure_new(), let coordinate = BN_secure_new()
        else { throw OpenSSLError("preparing the curve P-256") }
        self.context = context
        self.point = point
        self.scalar = scalar
        self.coordinate = coordinate
        BN_set_flags(scalar, BN_FLG_CONSTTIME)
    }

    deinit {
        EC_POINT_clear_free(point)
        BN_clear_free(scalar)
        BN_clear_free(coordinate)
        BN_CTX_free(context)
    }

    /// Whether 32 bytes are a private key: neither zero nor beyond the order of the curve.
    static func isScalar(_ bytes: [UInt8]) -> Bool {
        guard bytes.count == coordinateBytes, let number = BN_bin2bn(bytes, 32, nil) else {
            return false
        }
        defer { BN_clear_free(number) }
        return BN_is_zero(number) == 0 && BN_cmp(number, EC_GROUP_get0_order(group)) < 0
    }

    /// Takes a fresh random scalar as the private key.
    func renew() throws(OpenSSLError) {
        ERR_clear_error()
        repeat {
            guard BN_priv_rand_range(scalar, EC_GROUP_get0_order(Self.group)) == 1 else {
                throw OpenSSLError("drawing a private key")
            }
        } while BN_is_zero(scalar) == 1
    }

    /// Takes a given scalar, 32 bytes, as the private key.
    func use(scalar bytes: [UInt8]) throws(OpenSSLError) {
        guard BN_bin2bn(bytes, Int32(bytes.count), scalar) != nil else {
            throw OpenSSLError("reading a private key")
        }
    }

    /// Writes the public half of the private key, 65 bytes.
    func writePublicKey(into bytes: UnsafeMutableRawBufferPointer) throws(OpenSSLError) {
        ERR_clear_error()
        guard EC_POINT_mul(Self.group, point, scalar, nil, nil, context) == 1,
            EC_POINT_point2oct(
                Self.group, point, POINT_CONVERSION_UNCOMPRESSED,
                bytes.assumingMemoryBound(to: UInt8.self).baseAddress, bytes.count, context)
                == Self.pointBytes
        else { throw OpenSSLError("computing a public key") }
    }

    /// Writes the secret shared with the owner of a point, 32 bytes: its X coordinate.
    func writeSharedSecret(
        with peer: P256Point, into bytes: UnsafeMutableRawBufferPointer
    ) throws(OpenSSLError) {
        ERR_clear_error()
        guard EC_POINT_mul(Self.group, point, nil, peer.raw, scalar, context) == 1,
            EC_POINT_get_affine_coordinates(Self.group, point, coordinate, nil, context) == 1,
            BN_bn2binpad(
                coordinate, bytes.assumingMemoryBound(to: UInt8.self).baseAddress,
                Int32(Self.coordinateBytes)) == Int32(Self.coordinateBytes)
        else { throw OpenSSLError("agreeing on a key") }
    }
}

/// A point of the curve that is a public key.
///
/// `@unchecked Sendable`: nothing changes the point after `init`.
internal final class P256Point: @unchecked Sendable {
    /// Owned; freed by `deinit`.
    let raw: OpaquePointer

    /// Reads an uncompressed point; nil when it is no such, or not on the curve. The curve has no
    /// points of small order, so that nothing else is to be checked.
    init?(_ bytes: [UInt8]) {
        guard bytes.count == P256Agreement.pointBytes, bytes[0] == 4,
            let group = P256Agreement.group, let raw = EC_POINT_new(group)
        else { return nil }
        defer { ERR_clear_error() }
        guard EC_POINT_oct2point(group, raw, bytes, bytes.count, nil) == 1 else {
            EC_POINT_free(raw)
            return nil
        }
        self.raw = raw
    }

    deinit { EC_POINT_free(raw) }
}
