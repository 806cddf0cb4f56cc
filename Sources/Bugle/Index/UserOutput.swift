// What a person said once for all devices, for a person and for a machine.

internal import Base
internal import JSON
internal import Routes
internal import TokenIndex

extension UserRecord {
    /// A few lines for a person.
    internal var lines: [String] {
        var lines: [String] = []
        if !optOuts.isEmpty { lines.append("opted out of \(optOuts.joined(separator: ", "))") }
        if let quietHours {
            // Devices and the configuration may know better where nobody has said it.
            let zone = timeZone ?? "UTC"
            let end = WallClocks().end(of: quietHours, in: zone, at: SystemTime.shared.wall)
            lines.append(
                "quiet hours \(quietHours.text)"
                    + (end.map { ", now and until \(RFC3339.text($0)) by the clock of \(zone)" }
                        ?? "")
            )
        }
        let manner = [timeZone, locale, unread.map { "\($0) unread" }].compactMap(\.self)
        if !manner.isEmpty { lines.append(manner.joined(separator: ", ")) }
        return lines
    }
}

extension UserRecord? {
    /// The member `user` of an object; null when nothing is known.
    internal func writeMember(to object: inout JSONObjectWriter) {
        object.name("user")
        guard let self else {
            object.bytes.append("null")
            return
        }
        var inner = JSONObjectWriter(object.bytes)
        inner.strings("opt_outs", self.optOuts)
        inner.string("quiet_hours", orNull: self.quietHours?.text)
        inner.string("time_zone", orNull: self.timeZone)
        inner.string("locale", orNull: self.locale)
        inner.integer("unread", orNull: self.unread)
        inner.end()
    }
}
