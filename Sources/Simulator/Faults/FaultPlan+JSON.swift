// Fault plans as files, for `simulate`: the same rules as in code, in JSON.
//
//     {"seed": 7, "rules": [
//       {"name": "gone", "token_prefix": "dead", "effect": {"answer": {"status": 410,
//         "reason": "Unregistered"}}},
//       {"service": "fcm", "probability": 0.01, "effect": {"html": 502}},
//       {"service": ["apns-production"], "skip": 99, "count": 1,
//         "effect": {"go_away": {"debug": "{\"reason\":\"Shutdown\"}"}}},
//       {"effect": {"delay_lognormal_ms": {"median": 40, "sigma": 0.5}}}]}
//
// Effects without parameters are plain strings: "refuse", "cut_before", "cut_after",
// "withhold_answer", "play_dead", "ignore_pings", "break_tls", "stall_tls", "without_http2",
// "reset_on_accept".

internal import Base
internal import HTTP2
internal import JSON

extension FaultPlan {
    /// Reads a plan from JSON.
    public init(json: [UInt8]) throws(FaultPlanError) {
        let parser = JSONParser()
        let document: JSONValue
        do {
            document = try parser.parse(json)
        } catch {
            throw FaultPlanError(place: "", problem: "the fault plan is not JSON: \(error)")
        }
        let reader = try FaultReader(document, at: "", known: ["seed", "rules"])
        self.init(seed: UInt64(try reader.integer("seed", in: 0...Int64.max) ?? 1))
        guard let list = reader.member("rules") else { return }
        guard list.isArray else { throw reader.wrong("rules", "an array is needed") }
        var index = 0
        try list.forEachElement { (item) throws(FaultPlanError) in
            rules.append(try FaultRule(item, at: "rules[\(index)]"))
            index += 1
        }
    }
}

extension FaultRule {
    private static let known: Set<String> = [
        "name", "effect", "service", "token_prefix", "token_pattern", "connection",
        "connection_request", "skip", "count", "every", "probability", "from_ms", "until_ms",
    ]

    fileprivate init(_ value: JSONValue, at place: String) throws(FaultPlanError) {
        let reader = try FaultReader(value, at: place, known: Self.known)
        guard let effect = reader.member("effect") else {
            throw reader.wrong("effect", "missing; a rule says what goes wrong")
        }
        self.init(
            try reader.text("name") ?? "", try FaultMatch(reader),
            try FaultEffect(effect, at: place + ".effect"))
    }
}

extension FaultMatch {
    fileprivate init(_ reader: FaultReader) throws(FaultPlanError) {
        self.init()
        services = try Self.services(reader)
        tokenPrefix = try reader.text("token_prefix")
        tokenPattern = try reader.text("token_pattern")
        connection = try reader.count("connection", from: 1)
        connectionRequest = try reader.count("connection_request", from: 1)
        skip = try reader.count("skip", from: 0) ?? 0
        count = try reader.count("count", from: 0)
        every = try reader.count("every", from: 1) ?? 1
        probability = try reader.number("probability", in: 0...1)
        from = try reader.span("from_ms")
        until = try reader.span("until_ms")
    }

    private static func services(
        _ reader: FaultReader
    ) throws(FaultPlanError) -> Set<SimulatedService>? {
        guard let value = reader.member("service") else { return nil }
        func service(_ value: JSONValue) throws(FaultPlanError) -> SimulatedService {
            guard let service = value.string.flatMap(SimulatedService.init) else {
                let names = SimulatedService.allCases.map(\.rawValue).joined(separator: ", ")
                throw reader.wrong("service", "one of \(names) is needed, or an array of them")
            }
            return service
        }
        guard value.isArray else { return [try service(value)] }
        var services: Set<SimulatedService> = []
        try value.forEachElement { (item) throws(FaultPlanError) in
            services.insert(try service(item))
        }
        return services
    }
}

extension FaultEffect {
    private static let plain: [String: FaultEffect] = [
        "refuse": .refuse, "cut_before": .cut(processed: false), "cut_after": .cut(processed: true),
        "withhold_answer": .withholdAnswer(processed: true),
        "play_dead": .playDead(processed: true, readingOn: true), "ignore_pings": .ignorePings,
        "break_tls": .accept(.breakTLS), "stall_tls": .accept(.stallTLS),
        "without_http2": .accept(.withoutHTTP2), "reset_on_accept": .accept(.reset),
    ]

    private static let parameterised: Set<String> = [
        "answer", "html", "delay_ms", "delay_lognormal_ms", "reset", "withhold_answer",
        "play_dead", "go_away", "settings", "withhold_window_updates_ms",
    ]

    fileprivate init(_ value: JSONValue, at place: String) throws(FaultPlanError) {
        if let name = value.string {
            guard let effect = Self.plain[name] else {
                throw FaultPlanError(
                    place: place,
                    problem: "\"\(name)\" is no effect without parameters; those are "
                        + Self.plain.keys.sorted().joined(separator: ", "))
            }
            self = effect
            return
        }
        let reader = try FaultReader(value, at: place, known: Self.parameterised)
        guard value.count == 1 else {
            throw FaultPlanError(place: place, problem: "exactly one effect is needed")
        }
        if let effect = try Self.latency(reader) {
            self = effect
        } else if let effect = try Self.ending(reader) {
            self = effect
        } else if let effect = try Self.other(reader) {
            self = effect
        } else {
            throw FaultPlanError(place: place, problem: "an effect's parameters cannot be null")
        }
    }

    private static func latency(_ reader: FaultReader) throws(FaultPlanError) -> FaultEffect? {
        if let value = reader.member("delay_ms") {
            guard value.isArray else {
                return .delay(.fixed(try reader.span("delay_ms") ?? .zero))
            }
            var bounds: [TimeSpan] = []
            try value.forEachElement { (item) throws(FaultPlanError) in
                guard let millis = item.double, (0...FaultReader.longestMillis).contains(millis)
                else { throw reader.wrong("delay_ms", "milliseconds are needed") }
                bounds.append(FaultReader.span(millis))
            }
            guard bounds.count == 2, bounds[0] <= bounds[1] else {
                throw reader.wrong("delay_ms", "a number or [lowest, highest] is needed")
            }
            return .delay(.uniform(bounds[0], bounds[1]))
        }
        guard let value = reader.member("delay_lognormal_ms") else { return nil }
        let inner = try FaultReader(
            value, at: reader.place + ".delay_lognormal_ms", known: ["median", "sigma"])
        guard let median = try inner.span("median") else {
            throw inner.wrong("median", "missing; milliseconds are needed")
        }
        return .delay(
            .lognormal(median: median, sigma: try inner.number("sigma", in: 0...3) ?? 0.5))
    }

    private static func ending(_ reader: FaultReader) throws(FaultPlanError) -> FaultEffect? {
        if let status = try reader.integer("html", in: 200...599) {
            return .answer(.html(Int(status)))
        }
        if let value = reader.member("answer") {
            return .answer(try FaultAnswer(value, at: reader.place + ".answer"))
        }
        if let value = reader.member("reset") {
            let inner = try FaultReader(
                value, at: reader.place + ".reset", known: ["codes", "processed"])
            var codes: [UInt32] = []
            try inner.member("codes")?.forEachElement { (item) throws(FaultPlanError) in
                guard let code = item.int64, (0...Int64(UInt32.max)).contains(code) else {
                    throw inner.wrong("codes", "error codes of HTTP/2 are needed")
                }
                codes.append(UInt32(code))
            }
            if codes.isEmpty { throw inner.wrong("codes", "an array of error codes is needed") }
            return .reset(codes: codes, processed: try inner.flag("processed", default: true))
        }
        if let value = reader.member("withhold_answer") {
            let inner = try FaultReader(
                value, at: reader.place + ".withhold_answer", known: ["processed"])
            return .withholdAnswer(processed: try inner.flag("processed", default: true))
        }
        if let value = reader.member("play_dead") {
            let inner = try FaultReader(
                value, at: reader.place + ".play_dead", known: ["processed", "reading_on"])
            return .playDead(
                processed: try inner.flag("processed", default: true),
                readingOn: try inner.flag("reading_on", default: true))
        }
        return nil
    }

    private static func other(_ reader: FaultReader) throws(FaultPlanError) -> FaultEffect? {
        if let span = try reader.span("withhold_window_updates_ms") {
            return .withholdWindowUpdates(span)
        }
        if let value = reader.member("settings") {
            let inner = try FaultReader(
                value, at: reader.place + ".settings",
                known: ["max_concurrent_streams", "initial_window_size", "header_table_size"])
            return .changeSettings(
                SettingsChange(
                    maxConcurrentStreams: try inner.unsigned("max_concurrent_streams"),
                    initialWindowBytes: try inner.unsigned("initial_window_size"),
                    headerTableBytes: try inner.unsigned("header_table_size")))
        }
        guard let value = reader.member("go_away") else { return nil }
        return .goAway(try GoAwayFault(value, at: reader.place + ".go_away"))
    }
}

extension GoAwayFault {
    fileprivate init(_ value: JSONValue, at place: String) throws(FaultPlanError) {
        let reader = try FaultReader(
            value, at: place,
            known: ["code", "debug", "last_stream", "graceful", "close_after_ms"])
        var last = LastStream.highest
        if let number = reader.member("last_stream")?.int64 {
            last = .stream(Int32(clamping: max(number, 0)))
        } else if let name = try reader.text("last_stream") {
            switch name {
            case "current": last = .current
            case "highest": last = .highest
            default:
                throw reader.wrong("last_stream", "\"current\", \"highest\" or an id is needed")
            }
        }
        self.init(
            code: try reader.unsigned("code") ?? 0, debug: try reader.text("debug") ?? "",
            lastStream: last, isGraceful: try reader.flag("graceful", default: false),
            closeAfter: try reader.span("close_after_ms"))
    }
}

extension FaultAnswer {
    fileprivate init(_ value: JSONValue, at place: String) throws(FaultPlanError) {
        let reader = try FaultReader(
            value, at: place, known: ["status", "reason", "headers", "timestamp_ms", "body"])
        guard let status = try reader.integer("status", in: 200...599) else {
            throw reader.wrong("status", "missing; a status code is needed")
        }
        var fields: [ServerField] = []
        if let headers = reader.member("headers") {
            guard headers.isObject else { throw reader.wrong("headers", "an object is needed") }
            try headers.forEachMember { (name, value) throws(FaultPlanError) in
                guard let text = value.string else {
                    throw reader.wrong("headers.\(name.text)", "a string is needed")
                }
                fields.append(ServerField(name.text.lowercased(), text))
            }
        }
        self.init(
            status: Int(status), reason: try reader.text("reason") ?? "", fields: fields,
            timestamp: try reader.integer("timestamp_ms", in: 0...Int64.max).map { UnixMillis($0) },
            body: try reader.text("body"))
    }
}
