// Forgetting a user. The truth is in the topics, so they are searched, not Redis: every record
// that names the user is found again under the key it was written with, whoever wrote it, and is
// replaced by one that does not, which lets compaction take the old one away.
//
// What belongs to the user's addresses gets a `forget` and a null. A verdict that names the user
// but is about an address that has another owner now is written again without the name: it still
// counts.

internal import Base
internal import TokenIndex

/// What the topics hold of a user. Filled in two passes over them: the first finds the installs
/// that the user ever had, the second looks at all that is known of those.
internal struct UserTraces {
    let app: String
    let userID: String
    private(set) var installs: Set<String> = []
    private var model = InMemoryTokenIndex()
    private var devices: [Key: DeviceTrace] = [:]
    private var verdicts: [AddressID: InvalidationRecord?] = [:]
    /// Where the user's own record stands, and whether there is any by now.
    private var userRecords: [Key: Bool] = [:]

    /// A key where it stands: the same bytes in another partition are another record to compact.
    struct Key: Hashable, Comparable {
        var partition: Int32
        var bytes: [UInt8]

        static func < (left: Key, right: Key) -> Bool {
            left.partition == right.partition
                ? left.bytes.lexicographicallyPrecedes(right.bytes)
                : left.partition < right.partition
        }
    }

    /// The newest record of a key.
    private struct DeviceTrace {
        var ids: [AddressID]
        /// Whether it names the user, be it as the former one.
        var namesUser: Bool
        /// Whether it gives an address to somebody else.
        var namesOther: Bool
        var isNull: Bool
    }

    init(app: String, userID: String) {
        self.app = app
        self.userID = userID
    }

    /// The first pass.
    mutating func search(_ record: IndexRecord) {
        switch record.content {
        case .registration(let decoded):
            guard names(decoded) else { return }
            for id in decoded.records.map(\.addressID) { installs.insert(Self.install(id)) }
        case .invalidation(let verdict):
            guard let verdict, verdict.userID == userID, verdict.addressID.app == app else {
                return
            }
            installs.insert(Self.install(verdict.addressID))
        case .user: break
        }
    }

    /// Adds what an index knows of the user.
    mutating func add(_ reports: [AddressReport]) {
        for report in reports { installs.insert(Self.install(report.id)) }
    }

    /// The second pass begins again.
    mutating func collectAnew() {
        model = InMemoryTokenIndex()
        devices = [:]
        verdicts = [:]
        userRecords = [:]
    }

    /// The second pass.
    mutating func collect(_ record: IndexRecord) {
        let key = Key(partition: record.position.partition, bytes: record.key)
        switch record.content {
        case .registration(let decoded):
            let ids = decoded.records.map(\.addressID)
            guard
                devices[key] != nil || ids.contains(where: { installs.contains(Self.install($0)) })
            else { return }
            devices[key] = DeviceTrace(
                // What the key was about before says which address a bare null is about.
                ids: ids.isEmpty ? devices[key]?.ids ?? [] : ids, namesUser: names(decoded),
                namesOther: decoded.records.contains { isOfOther($0) },
                isNull: decoded.isNull)
        case .invalidation(let verdict):
            guard
                let id = verdict?.addressID
                    ?? AddressID(String(decoding: record.key, as: UTF8.self)),
                installs.contains(Self.install(id))
            else { return }
            verdicts[id] = .some(verdict)
        case .user(let change):
            guard change.app == app, change.userID == userID else { return }
            userRecords[key] = change.record != nil
        }
        model.apply(record)
    }

    // MARK: - What there is to do

    /// The user's addresses, as the topics have it.
    var owned: ForgottenUser {
        var user = model.forgetting(app: app, userID: userID, at: SystemTime.shared.wall)
        // A registry whose clock is ahead must not save its registrations from being forgotten.
        let newest = user.addresses.compactMap { $0.address?.registeredAt }.max()
        if let newest { user.asOf = max(user.asOf, newest) }
        return user
    }

    /// The keys that get a null.
    func nulls(_ owned: ForgottenUser) -> [Key] {
        let ids = Set(owned.addresses.map(\.id))
        return devices.filter { _, trace in
            guard !trace.isNull else { return false }
            return trace.ids.contains { ids.contains($0) } || (trace.namesUser && !trace.namesOther)
        }.keys.sorted()
    }

    /// The keys of the user's own record that get a null.
    var userNulls: [Key] { userRecords.filter(\.value).keys.sorted() }

    /// Verdicts on addresses that others have now, without the user.
    func anonymous(_ owned: ForgottenUser) -> [InvalidationRecord] {
        let ids = Set(owned.addresses.map(\.id))
        return verdicts.sorted { $0.key < $1.key }.compactMap { id, verdict in
            guard var record = verdict, record.userID == userID, !ids.contains(id) else {
                return nil
            }
            record.userID = nil
            record.token = nil
            record.eventID = nil
            record.resultID = nil
            return record
        }
    }

    /// Records that name the user beside an address that somebody else has: the next change of the
    /// row replaces them, and a null would take the address from its owner.
    func kept(_ owned: ForgottenUser) -> Int {
        let ids = Set(owned.addresses.map(\.id))
        return devices.values.count { trace in
            trace.namesUser && trace.namesOther && !trace.ids.contains { ids.contains($0) }
        }
    }

    // MARK: - Looking at records

    private func names(_ decoded: DecodedRegistration) -> Bool {
        guard decoded.records.first?.addressID.app == app else { return false }
        if decoded.formerUserID == userID { return true }
        return decoded.records.contains { record in
            if case .registered(let address) = record { address.userID == userID } else { false }
        }
    }

    private func isOfOther(_ record: RegistrationRecord) -> Bool {
        guard case .registered(let address) = record, let user = address.userID else {
            return false
        }
        return user != userID
    }

    private static func install(_ id: AddressID) -> String { "\(id.app)/\(id.installID)" }
}
