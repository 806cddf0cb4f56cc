internal import Base
internal import Config
internal import JSON
internal import TokenIndex

/// `bugle index forget USER`: erases a user from the topics of the index and from Redis.
internal enum IndexForget {
    /// What was done.
    private struct Summary {
        var app: String
        var userID: String
        var addresses: [AddressReport]
        var nulls: Int
        var forgets: Int
        var userNulls: Int
        var anonymous: Int
        var kept: Int
        /// Whether the index shows it; nil when it is not in Redis.
        var isShown: Bool?
    }

    static func run(_ arguments: Arguments) throws(Failure) -> ExitCode {
        let userID = try arguments.positional("USER")[0]
        let access = try IndexCommand.access(arguments)
        let app = try access.app(arguments)
        let redis = access.configuration.index.store == .redis ? try access.redis() : nil
        var search = try TraceSearch(access, redis, app: app, userID)
        let count = search.traces.owned.addresses.count
        try Confirmation.ask(
            "Erase user \(userID.printable) of \(app), with \(count) addresses?",
            arguments, unasked: "the user would be erased", refused: "nothing was erased")
        // A question may stand open for long: somebody else may be logged in on a device by now.
        try search.readOn()
        let traces = search.traces
        let owned = traces.owned
        var summary = try write(traces, owned, access, redis)
        if let redis {
            try IndexAccess.orFail { () throws(IndexOperationError) in
                // What Redis knows beyond the topics is erased too.
                var all = try redis.forgetting(app: app, userID: userID, at: owned.asOf)
                let known = Set(all.addresses.map(\.id))
                all.addresses += owned.addresses.filter { !known.contains($0.id) }
                try redis.erase(all)
            }
        } else {
            summary.isShown = nil
        }
        arguments.has("json") ? show(summary) : tell(summary)
        return summary.isShown == false ? .failed : .ok
    }

    /// The two passes over the topics, which can be read on later.
    private struct TraceSearch {
        private(set) var traces: UserTraces
        private let access: IndexAccess
        private let redis: RedisIndexOperator?
        private let first: IndexTopicScan
        private var second: IndexTopicScan

        init(
            _ access: IndexAccess, _ redis: RedisIndexOperator?, app: String, _ userID: String
        ) throws(Failure) {
            self.access = access
            self.redis = redis
            var traces = UserTraces(app: app, userID: userID)
            first = try IndexTopicScan(access.configuration, access.cluster)
            try first.readToEnd { traces.search($0) }
            try Self.addKnown(to: &traces, redis)
            second = try IndexTopicScan(access.configuration, access.cluster)
            try second.readToEnd { traces.collect($0) }
            self.traces = traces
        }

        /// Takes in what was written since.
        mutating func readOn() throws(Failure) {
            var traces = traces
            let known = traces.installs
            try first.readToEnd { traces.search($0) }
            try Self.addKnown(to: &traces, redis)
            if traces.installs != known {
                // What the topics hold of an install that is new here was passed over.
                traces.collectAnew()
                second = try IndexTopicScan(access.configuration, access.cluster)
            }
            try second.readToEnd { traces.collect($0) }
            self.traces = traces
        }

        private static func addKnown(
            to traces: inout UserTraces, _ redis: RedisIndexOperator?
        ) throws(Failure) {
            guard let redis else { return }
            let (app, userID) = (traces.app, traces.userID)
            traces.add(
                try IndexAccess.orFail { () throws(IndexOperationError) in
                    try redis.reports(app: app, userID: userID)
                })
        }
    }

    /// The verdicts first: from then on no rebuild brings an address back.
    private static func write(
        _ traces: UserTraces, _ owned: ForgottenUser, _ access: IndexAccess,
        _ redis: RedisIndexOperator?
    ) throws(Failure) -> Summary {
        let publisher = try IndexPublisher(access)
        let anonymous = traces.anonymous(owned)
        let nulls = traces.nulls(owned)
        for record in owned.invalidations + anonymous { try publisher.write(record) }
        for key in nulls { try publisher.writeNull(key.bytes, partition: key.partition) }
        let userNulls = traces.userNulls
        for key in userNulls {
            try publisher.writeNull(key.bytes, partition: key.partition, of: .users)
        }
        var summary = Summary(
            app: owned.app, userID: owned.userID, addresses: owned.addresses, nulls: nulls.count,
            forgets: owned.invalidations.count, userNulls: userNulls.count,
            anonymous: anonymous.count,
            kept: traces.kept(owned))
        // Erased before the writer is through, an address could be listed again by a change that
        // it has begun.
        if let redis { summary.isShown = try publisher.waitUntilShown(by: redis) }
        return summary
    }

    private static func tell(_ summary: Summary) {
        Terminal.print(
            "User \(summary.userID.printable) of \(summary.app) is forgotten: "
                + "\(summary.addresses.count) "
                + (summary.addresses.count == 1 ? "address" : "addresses"))
        for report in summary.addresses {
            let way = report.address.map { "  \($0.wayName)  token \($0.tokenName)" } ?? ""
            Terminal.print("  \(report.id.text.printable)\(way)")
        }
        Terminal.print("  \(summary.nulls) null records on the topic of devices")
        Terminal.print("  \(summary.forgets) forget records on the topic of verdicts")
        if summary.userNulls > 0 {
            Terminal.print("  \(summary.userNulls) null records on the topic of users")
        }
        if summary.anonymous > 0 {
            Terminal.print(
                "  \(summary.anonymous) verdicts on addresses that others have now, written again "
                    + "without the user")
        }
        if summary.kept > 0 {
            Terminal.print(
                "  \(summary.kept) records of addresses that others have now still name the user "
                    + "as the former one; the next change of the row replaces them")
        }
        if summary.isShown == false {
            Terminal.note(
                "The index does not follow; is a process with the role index running? Run this "
                    + "again when there is one.")
        }
        Terminal.note(
            "Events, results and dead letters that name the user go with the retention of their "
                + "topics; the registry that feeds the topic of devices has to forget as well.")
    }

    private static func show(_ summary: Summary) {
        let bytes = ByteWriter()
        var object = JSONObjectWriter(bytes)
        object.string("app", summary.app)
        object.string("user_id", summary.userID)
        object.list("addresses", summary.addresses) { bytes, report in
            var inner = JSONObjectWriter(bytes)
            inner.string("address_id", report.id.text)
            inner.string("token_hash", orNull: report.address?.tokenName)
            inner.end()
        }
        object.integer("null_records", Int64(summary.nulls))
        object.integer("forget_records", Int64(summary.forgets))
        object.integer("user_null_records", Int64(summary.userNulls))
        object.integer("anonymous_verdicts", Int64(summary.anonymous))
        object.integer("records_kept", Int64(summary.kept))
        object.bool("applied", summary.isShown ?? false)
        object.end()
        Terminal.print(bytes.text)
    }
}
