// A script of what goes wrong: ordered rules, each a match and an effect. A plan is a value; with
// the same seed and the same order of requests it does the same again.

public import Base
public import HTTP2

/// What goes wrong, and when.
public struct FaultPlan: Sendable, Hashable, CustomStringConvertible {
    /// The seed of every random decision.
    public var seed: UInt64
    /// The rules, tried in order. Delays, settings and GOAWAY add up; the first rule that decides
    /// the answer is the last that is tried.
    public var rules: [FaultRule]

    /// A plan of some rules; without rules nothing goes wrong.
    public init(seed: UInt64 = 1, rules: [FaultRule] = []) {
        self.seed = seed
        self.rules = rules
    }

    /// The seed and the rules' names, to be printed where a run has to be repeatable.
    public var description: String {
        let names = rules.enumerated().map { index, rule in
            rule.name.isEmpty ? "rule \(index + 1)" : rule.name
        }
        return
            "fault plan with seed \(seed): \(names.isEmpty ? "no faults" : names.joined(separator: ", "))"
    }
}

/// One rule of a plan.
public struct FaultRule: Sendable, Hashable {
    /// What the rule is called where it is reported.
    public var name: String
    /// Which requests or connections it applies to.
    public var match: FaultMatch
    /// What it does to them.
    public var effect: FaultEffect

    /// A rule with a match and an effect.
    public init(_ name: String = "", _ match: FaultMatch = FaultMatch(), _ effect: FaultEffect) {
        self.name = name
        self.match = match
        self.effect = effect
    }
}

/// Which requests, or which connections, a rule applies to; every condition has to hold.
public struct FaultMatch: Sendable, Hashable {
    /// The services; nil means all pushes, but not the token endpoint.
    public var services: Set<SimulatedService>?
    /// How the token begins.
    public var tokenPrefix: String?
    /// The token's form, with `*` for any characters and `?` for one.
    public var tokenPattern: String?
    /// The number of the connection within its service, counted from 1.
    public var connection: Int?
    /// The number of the request within its connection, counted from 1.
    public var connectionRequest: Int?
    /// How many that meet the conditions so far are passed over first.
    public var skip = 0
    /// How many are then affected; nil means all.
    public var count: Int?
    /// Of those that are left every how manieth is affected.
    public var every = 1
    /// The chance that one that is left is affected.
    public var probability: Double?
    /// Not before this long after the plan came into force.
    public var from: TimeSpan?
    /// Not later than this long after the plan came into force.
    public var until: TimeSpan?

    /// A match of everything that is a push.
    public init() {}

    /// A match of some services, by token and by number.
    public init(
        _ services: SimulatedService..., tokenPrefix: String? = nil, tokenPattern: String? = nil,
        connection: Int? = nil, connectionRequest: Int? = nil, skip: Int = 0, count: Int? = nil,
        every: Int = 1, probability: Double? = nil, from: TimeSpan? = nil, until: TimeSpan? = nil
    ) {
        self.services = services.isEmpty ? nil : Set(services)
        self.tokenPrefix = tokenPrefix
        self.tokenPattern = tokenPattern
        self.connection = connection
        self.connectionRequest = connectionRequest
        self.skip = skip
        self.count = count
        self.every = every
        self.probability = probability
        self.from = from
        self.until = until
    }
}

/// What a rule does.
public enum FaultEffect: Sendable, Hashable {
    /// The answer comes later. Adds up with other delays.
    case delay(LatencyDistribution)
    /// Another answer than the rules of the gateway give.
    case answer(FaultAnswer)
    /// RST_STREAM with REFUSED_STREAM: not processed.
    case refuse
    /// RST_STREAM with these codes, one frame each, before or after processing.
    case reset(codes: [UInt32], processed: Bool)
    /// No answer, ever, to this request.
    case withholdAnswer(processed: Bool)
    /// The connection is never written to again; it may be read from.
    case playDead(processed: Bool, readingOn: Bool)
    /// The TCP connection is reset, before or after processing; the answer is lost.
    case cut(processed: Bool)
    /// GOAWAY, after this request's answer or what stands for it.
    case goAway(GoAwayFault)
    /// A SETTINGS frame.
    case changeSettings(SettingsChange)
    /// No WINDOW_UPDATE for this long.
    case withholdWindowUpdates(TimeSpan)
    /// PING stays unanswered from now on.
    case ignorePings
    /// What becomes of a connection when it is accepted.
    case accept(Acceptance)

    /// Whether the effect is on connections being accepted, not on requests.
    var isOnAccept: Bool {
        if case .accept = self { return true }
        return false
    }
}

/// An answer that a rule gives instead of the gateway's own.
public struct FaultAnswer: Sendable, Hashable {
    /// The status.
    public var status: Int
    /// The gateway's reason; with no body given, the body is made from it in the gateway's form.
    public var reason: String
    /// Further header fields, e.g. `retry-after`.
    public var fields: [ServerField]
    /// The timestamp of a 410; nil means now.
    public var timestamp: UnixMillis?
    /// The body as it stands; nil means one made from the reason.
    public var body: String?

    /// An answer with a status and a reason.
    public init(
        status: Int, reason: String = "", fields: [ServerField] = [],
        timestamp: UnixMillis? = nil, body: String? = nil
    ) {
        self.status = status
        self.reason = reason
        self.fields = fields
        self.timestamp = timestamp
        self.body = body
    }

    /// A front end's HTML page.
    public static func html(_ status: Int) -> FaultAnswer {
        FaultAnswer(
            status: status, fields: [ServerField("content-type", "text/html; charset=UTF-8")],
            body: "<!DOCTYPE html><html><title>Error \(status)</title><p>That is an error.</html>")
    }
}

/// A GOAWAY that a rule sends.
public struct GoAwayFault: Sendable, Hashable {
    /// Which streams it lets finish.
    public enum LastStream: Sendable, Hashable {
        /// Those up to the request that triggered it.
        case current
        /// Those up to the highest received.
        case highest
        /// Those up to a number.
        case stream(Int32)
    }

    /// The error code.
    public var code: UInt32
    /// The debug data, e.g. `{"reason":"Shutdown"}`.
    public var debug: String
    /// Which streams it lets finish.
    public var lastStream: LastStream
    /// Whether a first GOAWAY with the highest possible id goes ahead.
    public var isGraceful: Bool
    /// How long afterwards the connection is closed; nil leaves it open.
    public var closeAfter: TimeSpan?

    /// A GOAWAY.
    public init(
        code: UInt32 = 0, debug: String = "", lastStream: LastStream = .highest,
        isGraceful: Bool = false, closeAfter: TimeSpan? = nil
    ) {
        self.code = code
        self.debug = debug
        self.lastStream = lastStream
        self.isGraceful = isGraceful
        self.closeAfter = closeAfter
    }
}
