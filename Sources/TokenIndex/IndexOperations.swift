// What an operator asks of an index or has it do; the same for both stores.

public import Base

/// Questions and orders of an operator.
public protocol IndexOperations {
    /// Everything that is known of a user's addresses, in the order of their ids, also of those
    /// that are not sent to.
    func reports(app: String, userID: String) throws(IndexOperationError) -> [AddressReport]

    /// The user's record; nil when there is none.
    func userRecord(app: String, userID: String) throws(IndexOperationError) -> UserRecord?

    /// Counts over the whole index. `progress` hears how many installs were counted so far.
    func statistics(progress: (Int) -> Void) throws(IndexOperationError) -> IndexStatistics

    /// The fuses that wait for somebody to settle them.
    func fuses() throws(IndexOperationError) -> [TrippedFuse]

    /// The records for `push.invalidations` that settle a fuse. Once they are written and read
    /// back the fuse is whole again; until then nothing changes. Throws when no fuse has that id.
    func records(
        settling fuseID: String, _ settlement: FuseSettlement
    ) throws(IndexOperationError) -> [InvalidationRecord]

    /// What forgetting a user takes. Nothing changes yet: write the records, then `erase`, so that
    /// a crash in between leaves all of it to be found again.
    func forgetting(
        app: String, userID: String, at now: UnixMillis
    ) throws(IndexOperationError) -> ForgottenUser

    /// Removes a user from the store, with no trace but the addresses' positions.
    func erase(_ user: ForgottenUser) throws(IndexOperationError)
}

/// Why an operation did not come about.
public enum IndexOperationError: Error, Equatable, Sendable, CustomStringConvertible {
    /// The store cannot be reached, or refuses.
    case unavailable(String)
    /// No tripped fuse has that id.
    case noSuchFuse(String)

    /// One line of text.
    public var description: String {
        switch self {
        case .unavailable(let text): "the token index does not answer: \(text)"
        case .noSuchFuse(let id): "no fuse \(id) has tripped, or it is settled already"
        }
    }
}

/// A user who is to be forgotten.
public struct ForgottenUser: Sendable {
    /// The app.
    public var app: String
    /// The user.
    public var userID: String
    /// The user's addresses as they are now.
    public var addresses: [AddressReport]
    /// The moment up to which registrations are forgotten.
    public var asOf: UnixMillis

    /// The keys whose null records belong on `push.devices`.
    public var deviceKeys: [String] { addresses.map(\.id.text) }

    /// The records for `push.invalidations`: they name neither user nor token.
    public var invalidations: [InvalidationRecord] {
        addresses.map {
            InvalidationRecord(
                addressID: $0.id, verdict: .forget, reason: "forgotten", origin: .operator,
                asOf: asOf)
        }
    }
}

/// Counts over an index.
public struct IndexStatistics: Sendable, Equatable {
    /// What addresses are counted by.
    public struct Kind: Hashable, Sendable, Comparable {
        /// The gateway.
        public var gateway: Gateway
        /// Its environment.
        public var environment: GatewayEnvironment
        /// How the addresses stand.
        public var standing: AddressStanding

        /// The order of a table's rows.
        public static func < (left: Kind, right: Kind) -> Bool { left.key < right.key }

        private var key: (String, String, String) {
            (gateway.rawValue, environment.rawValue, standing.rawValue)
        }
    }

    /// Installs of which anything is known.
    public var installs = 0
    /// Installs whose alerts could go through several gateways; they get one push.
    public var installsWithSeveralGateways = 0
    /// Addresses of installs on which nobody is logged in.
    public var loggedOut = 0
    /// Addresses that are gone and remembered for a while.
    public var gone = 0
    /// Addresses of users, by kind.
    public var addresses: [Kind: Int] = [:]

    /// No counts.
    public init() {}

    /// How many addresses stand so.
    public func count(_ standing: AddressStanding) -> Int {
        addresses.reduce(0) { $1.key.standing == standing ? $0 + $1.value : $0 }
    }

    internal mutating func add(install reports: [AddressReport]) {
        guard !reports.isEmpty else { return }
        installs += 1
        var gateways: Set<Gateway> = []
        for report in reports {
            guard let address = report.address else {
                gone += 1
                continue
            }
            if address.kind == "alert" { gateways.insert(address.gateway) }
            guard report.userID != nil else {
                loggedOut += 1
                continue
            }
            let kind = Kind(
                gateway: address.gateway, environment: address.environment,
                standing: report.standing)
            addresses[kind, default: 0] += 1
        }
        if gateways.count > 1 { installsWithSeveralGateways += 1 }
    }
}

/// A place where the store and the topics say different things.
public struct IndexDifference: Sendable, Equatable {
    /// What is different.
    public enum Kind: String, Sendable {
        /// The topics give the user this address, the store does not.
        case missing
        /// The store gives the user this address, the topics do not.
        case extra
        /// Both do, in different versions or standings.
        case different
        /// The user's entry cannot be read.
        case unreadable
    }

    /// The app.
    public var app: String
    /// The user.
    public var userID: String
    /// The address; nil when the user's record, or an entry that is unreadable, is meant.
    public var addressID: String?
    /// What is different.
    public var kind: Kind
}
