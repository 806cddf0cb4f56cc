// A bulkhead is what fails together: an app at a gateway in an environment. It knows how requests
// for it are built and which connections they take.

internal import Base
internal import Gateways
internal import HTTP2

/// One (app, gateway, environment) on one lane. Loop-confined.
internal final class Bulkhead {
    let app: String
    let gateway: Gateway
    let environment: GatewayEnvironment
    let pace: PoolPace
    var pool: HTTP2Pool { pace.pool }
    let sender: Sender
    let metrics: BulkheadMetrics
    /// What the results of all its targets have in common.
    let resultMembers: ByteWriter
    @exclusivity(unchecked) var breaker: Breaker
    @exclusivity(unchecked) var budget: Budget
    /// Targets that wait for room, in their order.
    var waiting: ArraySlice<TargetInFlight> = []
    /// When a parked event was last let out to see whether the gateway answers.
    var probeSentAt = MonotonicTime(nanos: .min / 2)
    /// Whether `waiting` is being worked on.
    var isAdmitting = false
    /// When the connections were last replaced on a gateway's word.
    var replacedAt = MonotonicTime(nanos: .min / 2)

    /// What builds and authorises the requests.
    enum Sender {
        case apns(APNsRenderer, APNsCredential)
        case fcm(FCMRenderer, AccessTokens)
    }

    init(
        app: String, gateway: Gateway, environment: GatewayEnvironment, pace: PoolPace,
        sender: Sender, metrics: BulkheadMetrics, inFlightMax: Int,
        breaker: Breaker
    ) {
        self.breaker = breaker
        budget = Budget(maximum: inFlightMax)
        self.app = app
        self.gateway = gateway
        self.environment = environment
        self.pace = pace
        self.sender = sender
        self.metrics = metrics
        resultMembers = ResultRecord.bulkheadMembers(gateway, environment)
    }
}

/// An app as one lane sees it: where its addresses are sent.
internal final class LaneApp {
    let name: String
    private(set) var bulkheads: [Bulkhead] = []

    init(name: String) { self.name = name }

    func add(_ bulkhead: Bulkhead) { bulkheads.append(bulkhead) }

    /// The bulkhead that serves an address; nil when the app is not configured for its gateway.
    func bulkhead(_ gateway: Gateway, _ environment: GatewayEnvironment) -> Bulkhead? {
        bulkheads.first { $0.gateway == gateway && $0.environment == environment }
    }
}
