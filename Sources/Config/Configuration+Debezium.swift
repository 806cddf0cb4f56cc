// The section `index.debezium`: tables of somebody else's whose change records are device
// addresses.

public import Base

extension Configuration.Index {
    /// A table whose rows are addresses, under other names than ours.
    public struct Table: Sendable, Equatable {
        /// The table as its change records name it, `table` or `schema.table`.
        public var name: String
        /// The app of its rows.
        public var app: String
        /// The environment of its APNs tokens; default `production`.
        public var environment: GatewayEnvironment
        /// The gateway by the row's platform; nil for the usual ones.
        public var gateways: [String: Gateway]?
        /// The column by the field, nil for a field that is not read; what is not named has the
        /// column that it has in `device_registrations`.
        public var columns: [String: String?]
    }

    /// The tables by their names; `fields` are the names a column can be given for.
    internal static func readTables(
        _ section: ConfigurationSection, apps: [Configuration.App]
    ) -> [Table] {
        section.members.compactMap { entry in
            let path = section.path(of: entry.key)
            var section = section
            // A table without settings is one with the columns of device_registrations.
            if entry.value.isNull {
                return Table(name: entry.key, section.section(entry.key), apps: apps)
            }
            guard
                let table = ConfigurationSection(entry.value, path: path, reader: section.reader)
            else { return nil }
            return Table(name: entry.key, table, apps: apps)
        }
    }
}

extension Configuration.Index.Table {
    fileprivate init(
        name: String, _ section: ConfigurationSection, apps: [Configuration.App]
    ) {
        var section = section
        self.name = name
        let only = apps.count == 1 ? apps[0].name : nil
        let app = section.text("app") ?? only ?? ""
        self.app = app
        if app.isEmpty {
            section.report("app", "missing; the table's rows do not say which app they belong to")
        } else if !apps.contains(where: { $0.name == app }) {
            section.report("app", "\(app) is not one of apps")
        }
        environment = section.value(
            "environment", default: .production, "production or sandbox"
        ) { GatewayEnvironment(rawValue: $0).flatMap { $0 == .none ? nil : $0 } }
        gateways = Self.readGateways(&section)
        columns = Self.readColumns(&section)
        section.finish()
    }

    private static func readGateways(_ section: inout ConfigurationSection) -> [String: Gateway]? {
        guard section.has("gateways") else { return nil }
        var gateways: [String: Gateway] = [:]
        let named = section.section("gateways")
        for entry in named.members {
            let path = named.path(of: entry.key)
            guard let text = named.reader.text(entry.value, path) else { continue }
            if let gateway = Gateway(rawValue: text) {
                gateways[entry.key] = gateway
            } else {
                named.reader.report(entry.line, path, "expected one of apns, fcm, webpush, expo")
            }
        }
        return gateways
    }

    private static func readColumns(_ section: inout ConfigurationSection) -> [String: String?] {
        var columns: [String: String?] = [:]
        let named = section.section("columns")
        for entry in named.members {
            let path = named.path(of: entry.key)
            guard fields.contains(entry.key) else {
                let near = NearestName.find(entry.key, among: fields)
                named.reader.report(
                    entry.line, path,
                    "no field of an address" + (near.map { "; did you mean \"\($0)\"?" } ?? ""))
                continue
            }
            if entry.value.isNull {
                columns[entry.key] = .some(nil)
            } else if let text = named.reader.text(entry.value, path) {
                columns[entry.key] = text
            }
        }
        return columns
    }

    /// The fields that a column can be named for: those of `push.devices`, whether the row is
    /// `active`, and when it was changed.
    public static let fields = [
        "active", "apns_topic", "app", "app_version", "auth", "capabilities", "changed_at",
        "endpoint", "environment", "expires_at", "gateway", "install_id", "instance", "keys",
        "kind", "last_seen_at", "locale", "muted_channels", "opt_outs", "p256dh", "permission",
        "platform", "public_keys", "registered_at", "subscriptions", "time_zone", "token",
        "user_id", "vapid_key_id", "version",
    ]
}
