// How much of what a user may get has been used up, for a person and for a machine.

internal import Base
internal import Config
internal import JSON
internal import Pipeline
internal import Routes
internal import TokenIndex

/// One cap and what counts for it now.
internal struct UsageExplanation {
    /// Where the configuration says it.
    let name: String
    let cap: Cap
    let used: Int

    var isFull: Bool { used >= cap.count }

    /// One line for a person.
    var line: String {
        "\(name): \(used) of \(ConfigurationSection.text(of: cap))"
            + (isFull ? "; the next one ends as over_cap" : "")
    }

    func writeMembers(to object: inout JSONObjectWriter) {
        object.string("name", name)
        object.string("cap", ConfigurationSection.text(of: cap))
        object.integer("used", Int64(used))
    }

    /// All caps of a user and of the user's devices at APNs. Counts of processes whose index is in
    /// their memory cannot be seen from outside.
    static func all(
        _ caps: Caps, _ index: any IndexOperations, app: String, userID: String,
        _ devices: [AddressReport], at now: UnixMillis
    ) throws(IndexOperationError) -> [UsageExplanation] {
        guard let redis = index as? RedisIndexOperator else { return [] }
        let people = caps.people
        let used = try redis.usage(of: people, app: app, userID: userID, at: now)
        var found = zip(people, used).map { cap, used in
            UsageExplanation(name: "caps.\(cap.name)", cap: cap.cap, used: used)
        }
        guard let silent = caps.silent else { return found }
        for device in devices where device.address?.gateway == .apns {
            let used = try redis.slots(of: device.id.text, silent, at: now)
            // Nearly every device is far from it.
            guard used > 0 else { continue }
            found.append(
                UsageExplanation(name: "caps.silent of \(device.id.text)", cap: silent, used: used))
        }
        return found
    }
}
