internal import Base
internal import Config
internal import JSON
internal import Routes
internal import TokenIndex

/// `bugle why USER`: why a user's devices get pushes, or not.
internal enum WhyCommand: Command {
    static let name = "why"
    static let summary = "says of each device of a user why it gets pushes or why not"
    static let synopsis = "why USER --config FILE [--app NAME] [--json]"
    static let options: [Option] = [.config, .app, .json]
    static let details = """
        Looks at the token index and at the configuration: token, verdict, permission, opt-outs,
        gateway and credential, quiet hours, and how much of the caps is used. What happened to one event, bugle tail and push.results say.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        let userID = try arguments.positional("USER")[0]
        let configuration = try ConfigurationFile.load(arguments)
        let access = try IndexAccess(configuration)
        let name = try access.app(arguments)
        guard let app = configuration.app(named: name) else { return .failed }
        let index = try access.operations()
        let reports = try IndexAccess.orFail { () throws(IndexOperationError) in
            try index.reports(app: name, userID: userID)
        }
        let record = try IndexAccess.orFail { () throws(IndexOperationError) in
            try index.userRecord(app: name, userID: userID)
        }
        let devices = DeviceExplanation.all(
            reports, app: app, configuration, staleness: access.staleness,
            at: SystemTime.shared.wall)
        let caps = try ConfigurationFile.routes(of: configuration).caps
        let usage = try IndexAccess.orFail { () throws(IndexOperationError) in
            try UsageExplanation.all(
                caps, index, app: name, userID: userID, reports, at: SystemTime.shared.wall)
        }
        let hindrance = try IndexAccess.hindrance(index)
        if arguments.has("json") {
            show(devices, record, usage, hindrance, app: name, userID)
        } else {
            explain(devices, record, usage, hindrance, app: name, userID)
        }
        return .ok
    }

    private static func explain(
        _ devices: [DeviceExplanation], _ record: UserRecord?, _ usage: [UsageExplanation],
        _ hindrance: String?, app: String, _ userID: String
    ) {
        if let hindrance { Terminal.print("No look-up is answered now: \(hindrance)") }
        guard !devices.isEmpty else {
            Terminal.print(
                "The index knows no device of user \(userID.printable) of \(app): none was "
                    + "registered for this user id, or all were given up or registered for "
                    + "another user since. Events end as no_devices.")
            return
        }
        let reached = devices.count { $0.obstacle == nil }
        Terminal.print(
            "User \(userID.printable) of \(app): pushes go to \(reached) of \(devices.count) "
                + (devices.count == 1 ? "address." : "addresses."))
        for line in (record?.lines ?? []) + usage.map(\.line) {
            Terminal.print("  \(line.printable)")
        }
        let width = devices.map(\.report.id.text.count).max() ?? 0
        for device in devices {
            let address = device.report.address
            let way = address.map { "\($0.wayName)  token \($0.tokenName)" } ?? ""
            Terminal.print(
                "\(device.report.id.text.printable.padded(to: width))  \(way.padded(to: 31))  "
                    + (device.obstacle.map { "no: \($0)" } ?? "yes").printable)
            for limit in device.limits {
                Terminal.print(String(repeating: " ", count: width + 35) + limit.printable)
            }
        }
    }

    private static func show(
        _ devices: [DeviceExplanation], _ record: UserRecord?, _ usage: [UsageExplanation],
        _ hindrance: String?, app: String, _ userID: String
    ) {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.string("app", app)
        object.string("user_id", userID)
        object.string("index_hindrance", orNull: hindrance)
        record.writeMember(to: &object)
        object.list("caps", usage) { bytes, cap in
            var inner = JSONObjectWriter(bytes)
            cap.writeMembers(to: &inner)
            inner.end()
        }
        object.list("addresses", devices) { bytes, device in
            var inner = JSONObjectWriter(bytes)
            inner.bool("gets_pushes", device.obstacle == nil)
            inner.string("obstacle", orNull: device.obstacle)
            inner.strings("limits", device.limits)
            device.report.writeMembers(to: &inner)
            inner.end()
        }
        object.end()
        Terminal.print(bytes.text)
    }
}

extension Option {
    static let app = value("app", "NAME", "the app; needed only where several are configured")
}

extension IndexAccess {
    /// Why look-ups wait; nil when they are answered.
    internal static func hindrance(_ index: any IndexOperations) throws(Failure) -> String? {
        guard let redis = index as? RedisIndexOperator else { return nil }
        let markers = try orFail { () throws(IndexOperationError) in try redis.markers() }
        if markers.isComplete { return nil }
        return
            "the index is incomplete, \(markers.completeBuckets) of \(IndexLimits.buckets) parts "
            + "are filled; a process with the role index fills it"
    }
}
