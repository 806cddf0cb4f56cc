internal import Base
internal import Config
internal import JSON
internal import TokenIndex

/// `bugle index ACTION`: looks after the token index.
internal enum IndexCommand: Command {
    static let name = "index"
    static let summary = "looks at the token index, checks it, builds it anew, erases a user"
    static let synopsis =
        "index get USER | verify | rebuild | forget USER | stats | release FUSE | discard FUSE\n"
        + "      --config FILE [--app NAME] [--yes] [--no-wait] [--json]"
    static let options: [Option] = [
        .config, .app,
        .flag("yes", "do not ask before rebuild, forget, release and discard"),
        .flag("no-wait", "rebuild: do not wait until it is done"),
        .json,
    ]
    static let details = """
        get USER      all that is known of a user and the user's addresses
        verify        compares Redis with the topics and lists differences; exit code 1 if any
        rebuild       has Redis filled anew from the topics; look-ups wait meanwhile
        forget USER   erases a user from the topics of the index and from Redis
        stats         how many addresses there are, of what kind; fuses that have tripped
        release FUSE  sends again to the addresses that a fuse holds: the mistake was ours
        discard FUSE  gives those addresses up: the gateway was right

        verify and forget read push.devices, push.invalidations and push.users as a whole.
        """

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        guard let action = arguments.positional.first else {
            throw .usage(
                "what to do is missing: get, verify, rebuild, forget, stats, release or "
                    + "discard")
        }
        let words = Arguments(
            values: arguments.values, positional: Array(arguments.positional.dropFirst()))
        switch action {
        case "get": return try IndexGet.run(words)
        case "verify": return try IndexVerify.run(words)
        case "rebuild": return try IndexRebuild.run(words)
        case "forget": return try IndexForget.run(words)
        case "stats": return try IndexStats.run(words)
        case "release": return try IndexSettle.run(words, .release)
        case "discard": return try IndexSettle.run(words, .discard)
        default:
            let known = ["get", "verify", "rebuild", "forget", "stats", "release", "discard"]
            let nearest = NearestName.find(action, among: known)
            throw .usage(
                "\(action): "
                    + (nearest.map { "did you mean \($0)?" }
                        ?? "expected one of \(known.joined(separator: ", "))"))
        }
    }

    /// The configuration's index, for an action that takes no further words.
    static func access(_ arguments: Arguments) throws(Failure) -> IndexAccess {
        try IndexAccess(try ConfigurationFile.load(arguments))
    }
}

/// `bugle index get USER`.
private enum IndexGet {
    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        let userID = try arguments.positional("USER")[0]
        let access = try IndexCommand.access(arguments)
        let app = try access.app(arguments)
        let index = try access.operations()
        let reports = try IndexAccess.orFail { () throws(IndexOperationError) in
            try index.reports(app: app, userID: userID)
        }
        let record = try IndexAccess.orFail { () throws(IndexOperationError) in
            try index.userRecord(app: app, userID: userID)
        }
        if arguments.has("json") {
            let bytes = ByteWriter()
            var object = JSONObjectWriter(bytes)
            object.string("app", app)
            object.string("user_id", userID)
            record.writeMember(to: &object)
            object.list("addresses", reports) { bytes, report in
                var inner = JSONObjectWriter(bytes)
                report.writeMembers(to: &inner)
                inner.end()
            }
            object.end()
            Terminal.print(bytes.text)
            return .ok
        }
        Terminal.print(
            "User \(userID.printable) of \(app): \(reports.count) "
                + (reports.count == 1 ? "address" : "addresses"))
        for line in record?.lines ?? [] { Terminal.print("  \(line.printable)") }
        for line in reports.flatMap(\.lines) { Terminal.print(line) }
        return .ok
    }
}

/// `bugle index verify`.
private enum IndexVerify {
    /// Comparisons of what was different, before it counts: a change on its way is no difference.
    private static let rounds = 3
    /// How long the index may take to follow the topics.
    private static let patience = TimeSpan.seconds(30)

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        let access = try IndexCommand.access(arguments)
        let redis = try access.redis()
        let scan = try IndexTopicScan(access.configuration, access.cluster)
        // The model hears no answers of gateways, so that each of its fuses would trip; what was held
        // back is on the topic.
        var policy = FusePolicy(access.configuration.index.fuse)
        policy.tokensMin = .max
        let model = InMemoryTokenIndex(fusePolicy: policy)
        try follow(scan, model, redis)
        var found = try compare(redis, model, nil)
        for _ in 0..<rounds where !found.isEqual && found.count == found.differences.count {
            try follow(scan, model, redis)
            let users = found.users
            found = try compare(redis, model, Set(found.differences.map(\.userID)))
            found.users = users
        }
        show(found, scan, asJSON: arguments.has("json"))
        return found.isEqual ? .ok : .failed
    }

    private static func follow(
        _ scan: IndexTopicScan, _ model: InMemoryTokenIndex, _ redis: RedisIndexOperator
    ) throws(Failure) {
        try scan.readToEnd { model.apply($0) }
        guard
            try IndexPublisher.wait(
                for: scan.ends, in: redis, upTo: patience, "the index is behind the topics")
        else {
            let hindrance = try IndexAccess.hindrance(redis)
            throw .failed(
                hindrance
                    ?? "the index is behind the topics and does not catch up; is a process with the "
                    + "role index running?")
        }
    }

    private static func compare(
        _ redis: RedisIndexOperator, _ model: InMemoryTokenIndex, _ users: Set<String>?
    ) throws(Failure) -> IndexVerification {
        let progress = ProgressLine()
        defer { progress.end() }
        return try IndexAccess.orFail { () throws(IndexOperationError) in
            try redis.verify(against: model, only: users) { count in
                progress.show("\(count) users compared")
            }
        }
    }

    private static func show(_ found: IndexVerification, _ scan: IndexTopicScan, asJSON: Bool) {
        if asJSON {
            let bytes = ByteWriter()
            var object = JSONObjectWriter(bytes)
            object.bool("equal", found.isEqual)
            object.integer("users", Int64(found.users))
            object.integer("records", Int64(scan.count))
            object.integer("records_skipped", Int64(scan.skipped))
            object.integer("count", Int64(found.count))
            object.list("differences", found.differences) { bytes, difference in
                var inner = JSONObjectWriter(bytes)
                inner.string("kind", difference.kind.rawValue)
                inner.string("app", difference.app)
                inner.string("user_id", difference.userID)
                inner.string("address_id", orNull: difference.addressID)
                inner.end()
            }
            object.end()
            Terminal.print(bytes.text)
            return
        }
        for difference in found.differences {
            Terminal.print(
                "\(difference.kind.rawValue.padded(to: 10))  user \(difference.userID.printable) of "
                    + "\(difference.app)  \((difference.addressID ?? "the user's record").printable)"
            )
        }
        if found.count > found.differences.count {
            Terminal.print("and \(found.count - found.differences.count) more")
        }
        Terminal.print(
            found.isEqual
                ? "Redis holds what the topics say: \(found.users) users, \(scan.count) records."
                : "\(found.count) differences, \(found.users) users, \(scan.count) records; "
                    + "bugle index rebuild makes Redis right.")
        if scan.skipped > 0 { Terminal.note("\(scan.skipped) records are not readable") }
    }
}

/// `bugle index rebuild`.
private enum IndexRebuild {
    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        let access = try IndexCommand.access(arguments)
        let redis = try access.redis()
        try Confirmation.ask(
            "Read the index anew? Look-ups, and so pushes, wait until it is done.", arguments,
            unasked: "pushes would wait until it is done", refused: "nothing was done")
        let start = SystemTime.shared.monotonic
        try IndexAccess.orFail { () throws(IndexOperationError) in try redis.requestRebuild() }
        let isAwaited = !arguments.has("no-wait")
        if isAwaited { try wait(for: redis) }
        let span = SystemTime.shared.monotonic - start
        if arguments.has("json") {
            let bytes = ByteWriter()
            var object = JSONObjectWriter(bytes)
            object.bool("complete", isAwaited)
            object.integer("ms", span.millis)
            object.end()
            Terminal.print(bytes.text)
        } else {
            Terminal.print(
                isAwaited
                    ? "The index was read anew in \(span.millis) ms."
                    : "The index is being read anew; bugle index stats says while it is not done.")
        }
        return .ok
    }

    private static func wait(for redis: RedisIndexOperator) throws(Failure) {
        let progress = ProgressLine()
        defer { progress.end() }
        var best: Int64 = -1
        var movedAt = SystemTime.shared.monotonic
        while true {
            let markers = try IndexAccess.orFail { () throws(IndexOperationError) in
                try redis.markers()
            }
            if markers.isComplete { return }
            let done =
                markers.positions.reduce(0) { $0 + $1.nextOffset } + Int64(markers.completeBuckets)
            let now = SystemTime.shared.monotonic
            if done > best { (best, movedAt) = (done, now) }
            guard now - movedAt < patience else {
                throw .failed(
                    "nothing has moved for \(patience.millis / 1000) s; is a process with the role "
                        + "index running? It goes on by itself once there is one")
            }
            progress.show("\(markers.completeBuckets) of \(IndexLimits.buckets) parts are filled")
            pause(.milliseconds(200))
        }
    }

    /// How long nothing may move. Markers are written at the end only: a large index is long silent.
    private static let patience = TimeSpan.minutes(10)
}

/// `bugle index stats`.
private enum IndexStats {
    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        _ = try arguments.positional()
        let access = try IndexCommand.access(arguments)
        let index = try access.operations()
        let progress = ProgressLine()
        let (statistics, fuses) = try IndexAccess.orFail { () throws(IndexOperationError) in
            let statistics = try index.statistics { count in
                progress.show("\(count) installs counted")
            }
            return (statistics, try index.fuses())
        }
        progress.end()
        let hindrance = try IndexAccess.hindrance(index)
        if arguments.has("json") {
            show(statistics, fuses, hindrance)
        } else {
            tell(statistics, fuses, hindrance)
        }
        return .ok
    }

    private static func tell(
        _ statistics: IndexStatistics, _ fuses: [TrippedFuse], _ hindrance: String?
    ) {
        Terminal.print(
            "\(statistics.installs) installs, \(statistics.installsWithSeveralGateways) with "
                + "several gateways, which get one push each")
        for kind in statistics.addresses.keys.sorted() {
            let environment = kind.environment == .none ? "" : kind.environment.rawValue
            Terminal.print(
                "\(kind.gateway.rawValue.padded(to: 8)) \(environment.padded(to: 11)) "
                    + "\(kind.standing.rawValue.padded(to: 12)) "
                    + "\(statistics.addresses[kind] ?? 0)".aligned(to: 10))
        }
        Terminal.print("logged out".padded(to: 33) + "\(statistics.loggedOut)".aligned(to: 10))
        Terminal.print("gone".padded(to: 33) + "\(statistics.gone)".aligned(to: 10))
        for fuse in fuses {
            Terminal.print(
                "fuse \(fuse.id) has tripped at \(RFC3339.text(fuse.since)) and holds \(fuse.held) "
                    + "addresses: \(fuse.reason.printable)")
            Terminal.print("  \(fuse.likelyCause)")
            Terminal.print("  bugle index release or discard settles it")
        }
        if let hindrance { Terminal.print(hindrance) }
    }

    private static func show(
        _ statistics: IndexStatistics, _ fuses: [TrippedFuse], _ hindrance: String?
    ) {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.integer("installs", Int64(statistics.installs))
        object.integer(
            "installs_with_several_gateways", Int64(statistics.installsWithSeveralGateways))
        object.list("addresses", statistics.addresses.keys.sorted()) { bytes, kind in
            var inner = JSONObjectWriter(bytes)
            inner.string("gateway", kind.gateway.rawValue)
            inner.string("environment", kind.environment.rawValue)
            inner.string("standing", kind.standing.rawValue)
            inner.integer("count", Int64(statistics.addresses[kind] ?? 0))
            inner.end()
        }
        object.integer("logged_out", Int64(statistics.loggedOut))
        object.integer("gone", Int64(statistics.gone))
        object.list("fuses", fuses) { bytes, fuse in
            var inner = JSONObjectWriter(bytes)
            inner.string("id", fuse.id)
            inner.integer("since", fuse.since.value)
            inner.string("reason", fuse.reason)
            inner.integer("held", Int64(fuse.held))
            inner.string("likely_cause", fuse.likelyCause)
            inner.end()
        }
        object.string("index_hindrance", orNull: hindrance)
        object.end()
        Terminal.print(bytes.text)
    }
}

/// `bugle index release FUSE` and `discard FUSE`.
private enum IndexSettle {
    static func run(
        _ arguments: Arguments, _ settlement: FuseSettlement
    ) throws(Failure) -> ExitCode {
        let fuseID = try arguments.positional("FUSE")[0]
        let access = try IndexCommand.access(arguments)
        let index = try access.operations()
        let records = try IndexAccess.orFail { () throws(IndexOperationError) in
            try index.records(settling: fuseID, settlement)
        }
        let what = settlement == .release ? "Send again to" : "Give up"
        try Confirmation.ask(
            "\(what) the \(records.count) addresses that fuse \(fuseID) holds?", arguments,
            unasked: "\(records.count) addresses would be \(settlement.rawValue)d",
            refused: "nothing was done")
        let publisher = try IndexPublisher(access)
        let progress = ProgressLine()
        for (count, record) in records.enumerated() {
            try publisher.write(record)
            progress.show("\(count) of \(records.count) records written")
        }
        progress.end()
        var isShown: Bool?
        if let redis = index as? RedisIndexOperator {
            isShown = try publisher.waitUntilShown(by: redis)
        }
        if arguments.has("json") {
            let bytes = ByteWriter()
            var object = JSONObjectWriter(bytes)
            object.string("fuse", fuseID)
            object.string("settled", settlement.rawValue)
            object.integer("addresses", Int64(records.count))
            object.bool("applied", isShown ?? false)
            object.end()
            Terminal.print(bytes.text)
        } else {
            Terminal.print(
                "Fuse \(fuseID): \(records.count) addresses \(settlement.rawValue)d.")
        }
        if isShown == false {
            Terminal.note(
                "The index does not show it yet; is a process with the role index running?")
        }
        return isShown == false ? .failed : .ok
    }
}
