// The names of the keys. Everything about one user, one install or one token lives in one of
// 1,024 buckets; a bucket is one hash tag, so it is one slot of a Redis Cluster, and scripts stay
// inside it. Beside the keys of a bucket lies its marker.
//
//     <prefix>{b<n>}:u:<app>:<user>     hash   address id -> "<revision>:<entry>", see `UserEntry`
//                                              @ -> the user's record, see `StoredUser`
//     <prefix>{b<n>}:v:<app>:<user>     hash   the same, of a user with very many addresses
//     <prefix>{b<n>}:x:<app>:<user>     hash   address id -> revision at which it was unlinked
//     <prefix>{b<n>}:p:<app>:<user>     text   position of a user's record that was taken back
//     <prefix>{b<n>}:c:<app>:<user>/<name>  text  a note, kept for a while
//     <prefix>{b<n>}:i:<app>/<install>  hash   s -> state, p:<address id> -> stored address
//     <prefix>{b<n>}:t:<token slot>     hash   a, r -> holder and its registered_at,
//                                              x:<address id> -> claim that displaced it
//     <prefix>{b<n>}:m                  hash   d<n>, i<n>, u<n> -> next offset of a partition of
//                                              one of the topics, c -> 1 when it has them all
//     <prefix>{b0}:w                    never there; see `RedisTokenIndex.probeKey`
//     <prefix>{b<n>}:f...               the fuses, all in one bucket, see `FuseScripts`
//
// The install's record is the truth of this cache: every change goes through it and raises its
// revision, and an entry under a user is replaced or removed only by a higher one. So writers of
// different partitions, and one that does not know yet that it was replaced, can do no harm.

internal import Base

internal struct RedisLayout: Sendable {
    let prefix: String

    /// The prefix goes in front of every key and must not open a hash tag of its own.
    init(prefix: String) {
        precondition(!prefix.utf8.contains(0x7B), "a key prefix without braces")
        self.prefix = prefix
    }

    func user(_ userID: String, app: String) -> String { userKey("u", userID, app) }
    func further(_ userID: String, app: String) -> String { userKey("v", userID, app) }
    func unlinked(_ userID: String, app: String) -> String { userKey("x", userID, app) }
    func formerRecord(of userID: String, app: String) -> String { userKey("p", userID, app) }

    func note(_ name: String, of userID: String, app: String) -> String {
        "\(userKey("c", userID, app))/\(name)"
    }

    func install(_ id: AddressID) -> String {
        let install = id.install
        return "\(prefix){b\(Self.bucket(of: install))}:i:\(install)"
    }

    func slot(_ slot: String) -> String { "\(prefix){b\(Self.bucket(of: slot))}:t:\(slot)" }

    func marker(_ bucket: Int) -> String { "\(prefix){b\(bucket)}:m" }

    // MARK: - Fuses

    func answers(_ name: FuseName) -> String { "\(fuses):fa:\(name.text)" }
    func judged(_ name: FuseName) -> String { "\(fuses):ft:\(name.text)" }
    var trippedFuses: String { "\(fuses):f" }
    var settledFuses: String { "\(fuses):fs" }

    func churn(app: String, _ gateway: Gateway, _ environment: GatewayEnvironment) -> String {
        "\(fuses):fc:\(app)/\(gateway.rawValue)/\(environment.rawValue)"
    }

    private var fuses: String { "\(prefix){b\(Self.bucket(of: "fuses"))}" }

    // MARK: - Users

    private func userKey(_ type: String, _ userID: String, _ app: String) -> String {
        "\(prefix){b\(Self.bucket(of: userID, app: app))}:\(type):\(app):\(userID)"
    }

    // MARK: - Buckets

    static func bucket(of userID: String, app: String) -> Int {
        fold(hash(userID, hash(":", hash(app, seed))))
    }

    static func bucket(of text: String) -> Int { fold(hash(text, seed)) }

    private static func fold(_ hash: UInt64) -> Int {
        Int((hash ^ (hash >> 32)) % UInt64(IndexLimits.buckets))
    }

    /// FNV-1a. Part of the stored layout.
    private static func hash(_ text: String, _ start: UInt64) -> UInt64 {
        var text = text
        return text.withUTF8 { bytes in
            var hash = start
            for byte in bytes { hash = (hash ^ UInt64(byte)) &* 0x100_0000_01B3 }
            return hash
        }
    }

    private static let seed: UInt64 = 0xCBF2_9CE4_8422_2325
}
