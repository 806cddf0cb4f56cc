// Addresses for a person and for a machine. Tokens are named, never shown.

internal import Base
internal import JSON
internal import TokenIndex

extension AddressReport {
    /// A few lines for a person.
    internal var lines: [String] {
        var lines = [id.text.printable]
        func add(_ text: String) { lines.append("  " + text.printable) }
        if let address {
            add(
                "\(address.wayName), token \(address.tokenName), \(address.platform), "
                    + "permission \(address.permission.rawValue)")
            add("user \(userID ?? "-"), version \(address.version)" + appText(address))
            let seen = lastSeenAt ?? address.lastSeenAt
            add(
                "registered \(RFC3339.text(address.registeredAt))"
                    + (seen.map { ", seen \(RFC3339.text($0))" } ?? "")
                    + (address.expiresAt.map { ", ends \(RFC3339.text($0))" } ?? ""))
        }
        add(standingName + (displacedBy.map { " by \($0)" } ?? ""))
        if let verdict { add("last verdict: \(verdict.text)") }
        return lines
    }

    /// How it stands; what was taken back by a null record stands nowhere.
    private var standingName: String { address == nil ? "gone" : standing.rawValue }

    private func appText(_ address: DeviceAddress) -> String {
        (address.appVersion.map { ", app \($0)" } ?? "") + (address.locale.map { ", \($0)" } ?? "")
            + (address.timeZone.map { ", \($0)" } ?? "")
    }

    /// The members of an object.
    internal func writeMembers(to object: inout JSONObjectWriter) {
        object.string("address_id", id.text)
        object.string("install_id", id.installID)
        object.string("kind", id.kind)
        object.string("instance", orNull: id.instance)
        object.string("user_id", orNull: userID)
        object.string("standing", standingName)
        object.string("displaced_by", orNull: displacedBy?.text)
        object.integer("last_seen_at", orNull: (lastSeenAt ?? address?.lastSeenAt)?.value)
        if let address { Self.write(address, to: &object) }
        object.name("verdict")
        guard let verdict else {
            object.bytes.append("null")
            return
        }
        var inner = JSONObjectWriter(object.bytes)
        inner.string("verdict", verdict.kind.rawValue)
        inner.string("reason", verdict.reason)
        inner.integer("as_of", verdict.asOf.value)
        inner.string("held", orNull: verdict.held?.rawValue)
        inner.string("fuse_id", orNull: verdict.fuseID)
        inner.end()
    }

    private static func write(_ address: DeviceAddress, to object: inout JSONObjectWriter) {
        object.string("platform", address.platform)
        object.string("gateway", address.gateway.rawValue)
        object.string("environment", address.environment.rawValue)
        object.string("token_hash", address.tokenName)
        object.string("apns_topic", orNull: address.apnsTopic)
        object.string("vapid_key_id", orNull: address.vapidKeyID)
        object.integer("version", address.version)
        object.integer("registered_at", address.registeredAt.value)
        object.integer("expires_at", orNull: address.expiresAt?.value)
        object.string("permission", address.permission.rawValue)
        object.string("locale", orNull: address.locale)
        object.string("time_zone", orNull: address.timeZone)
        object.string("app_version", orNull: address.appVersion)
        object.strings("opt_outs", address.optOuts)
        object.strings("muted_channels", address.mutedChannels)
        object.strings("subscriptions", address.subscriptions)
        object.strings("capabilities", address.capabilities)
    }
}

extension AddressReport.Verdict {
    /// One line for a person.
    internal var text: String {
        kind.rawValue + (held.map { " instead of \($0.rawValue)" } ?? "")
            + (reason.isEmpty ? "" : ", \(reason)") + ", as of \(RFC3339.text(asOf))"
            + (fuseID.map { ", fuse \($0)" } ?? "")
    }
}

extension JSONObjectWriter {
    /// Writes a list of texts.
    internal mutating func strings(_ name: StaticString, _ values: [String]) {
        list(name, values) { bytes, value in bytes.append(jsonString: value) }
    }

    /// Writes a list.
    internal mutating func list<Element>(
        _ name: StaticString, _ elements: some Sequence<Element>,
        _ write: (ByteWriter, Element) -> Void
    ) {
        self.name(name)
        bytes.append("[")
        var isFirst = true
        for element in elements {
            if !isFirst { bytes.append(",") }
            isFirst = false
            write(bytes, element)
        }
        bytes.append("]")
    }
}
