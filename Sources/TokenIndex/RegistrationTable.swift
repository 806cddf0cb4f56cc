// A table of somebody else's whose rows are registrations: which column is which field, and what
// the table does not say. Its changes come as Debezium's change records.

public import Base

/// How the rows of a table are read as addresses.
public struct RegistrationTable: Sendable, Equatable {
    /// The table as the change records name it: `table` or `schema.table`.
    public var name: String
    /// The app of rows that have no column for it.
    public var app: String
    /// The environment of APNs tokens of rows that have no column for it.
    public var environment: GatewayEnvironment
    /// The gateway by the row's platform, of rows that have no column for it.
    public var gateways: [String: Gateway]
    /// The column of each field; a field that is not named is not read. Names of fields are those
    /// of `push.devices`, and `active` and `changed_at` beside them.
    public var columns: [String: String]

    /// A table with the columns of `defaultColumns`.
    public init(
        name: String, app: String, environment: GatewayEnvironment = .production,
        gateways: [String: Gateway] = Self.defaultGateways,
        columns: [String: String] = Self.defaultColumns
    ) {
        self.name = name
        self.app = app
        self.environment = environment
        self.gateways = gateways
        self.columns = columns
    }

    /// The gateway that a platform's own push service is.
    public static let defaultGateways: [String: Gateway] = [
        "ios": .apns, "android": .fcm, "web": .webpush,
    ]

    /// The columns of `device_registrations`. Each row is an address of its own, told apart by its
    /// `id`: several rows may have the same fingerprint, one for each token that the device had,
    /// and one of them that ends must not take the others along.
    public static let defaultColumns: [String: String] = [
        "install_id": "device_fingerprint", "instance": "id", "user_id": "user_id",
        "platform": "platform", "token": "push_token", "app_version": "app_version",
        "registered_at": "last_seen_at", "last_seen_at": "last_seen_at",
        "active": "is_active", "changed_at": "updated_at",
    ]

    /// Whether a change record with that source is one of this table.
    internal func matches(schema: String?, table: String) -> Bool {
        if name == table { return true }
        guard let schema else { return false }
        return name == "\(schema).\(table)"
    }
}
