internal import Config
internal import TokenIndex

extension RegistrationTable {
    /// A table as the configuration describes it.
    internal init(_ table: Configuration.Index.Table) {
        var columns = Self.defaultColumns
        for (field, column) in table.columns { columns[field] = column }
        self.init(
            name: table.name, app: table.app, environment: table.environment,
            gateways: table.gateways ?? Self.defaultGateways, columns: columns)
    }
}
