// The name of a device address: the key of its records in both topics.

/// `<app>/<install>` for the kind `alert`, `<app>/<install>/<kind>[/<instance>]` for others.
public struct AddressID: Hashable, Sendable, Comparable, CustomStringConvertible {
    /// The text form.
    public let text: String
    /// The configured app.
    public let app: String
    /// The client's stable id of this app on this device.
    public let installID: String
    /// What the token is for, e.g. `alert` or `voip`.
    public let kind: String
    /// Tells several addresses of one kind apart, e.g. Live Activities.
    public let instance: String?

    /// The id of an address; nil when a part is empty or holds a slash it must not hold.
    public init?(app: String, installID: String, kind: String = "alert", instance: String? = nil) {
        for part in [app, installID, kind] where part.isEmpty || part.utf8.contains(0x2F) {
            return nil
        }
        if instance == "" { return nil }
        self.app = app
        self.installID = installID
        self.kind = kind
        self.instance = instance
        let base = "\(app)/\(installID)"
        if let instance {
            text = "\(base)/\(kind)/\(instance)"
        } else {
            text = kind == "alert" ? base : "\(base)/\(kind)"
        }
    }

    /// Parses the text form; nil when it is not exactly what `text` would be.
    public init?(_ text: String) {
        let parts = text.split(separator: "/", maxSplits: 3, omittingEmptySubsequences: false)
        guard parts.count >= 2 else { return nil }
        self.init(
            app: String(parts[0]), installID: String(parts[1]),
            kind: parts.count > 2 ? String(parts[2]) : "alert",
            instance: parts.count > 3 ? String(parts[3]) : nil)
        guard self.text == text else { return nil }
    }

    /// `<app>/<install>`.
    internal var install: String { "\(app)/\(installID)" }

    /// The text form.
    public var description: String { text }

    /// Order by the bytes of the text form, the same as Redis' scripts compare.
    public static func < (left: AddressID, right: AddressID) -> Bool {
        left.text.utf8.lexicographicallyPrecedes(right.text.utf8)
    }
}
