// A bulkhead is what fails together: an app at a gateway in an environment, and of web push each
// push service by itself. It knows how requests for it are built and which connections they take.

internal import Base
internal import Crypto
internal import Gateways
internal import HTTP2
internal import TokenIndex

/// One (app, gateway, environment) on one lane. Loop-confined.
internal final class Bulkhead {
    let app: String
    let gateway: Gateway
    let environment: GatewayEnvironment
    @exclusivity(unchecked) private(set) var pace: PoolPace
    var pool: HTTP2Pool { pace.pool }
    @exclusivity(unchecked) private(set) var sender: Sender
    /// Counts the credentials that have served here.
    @exclusivity(unchecked) private(set) var credentialEpoch: UInt32 = 0
    let metrics: BulkheadMetrics
    /// The push service that it is for; nil at gateways with one address.
    let service: PushService?
    /// What the results of all its targets have in common.
    let resultMembers: ByteWriter
    @exclusivity(unchecked) var breaker: Breaker
    @exclusivity(unchecked) var budget: Budget
    /// What its project may send, over all replicas; nil for no bound.
    @exclusivity(unchecked) var permits: Permits?
    /// Targets that wait for room, in their order.
    @exclusivity(unchecked) var waiting = WaitingTargets()
    /// Since when it has had no room and has answered nothing; nil while it moves.
    var stillSince: MonotonicTime?
    /// When the gateway last answered for itself, and when something was last parked that is for it.
    @exclusivity(unchecked) var workedAt = MonotonicTime(nanos: .min / 2)
    @exclusivity(unchecked) var parkedAt = MonotonicTime(nanos: .min / 2)
    /// The pauses that the gateway asks for.
    let rest = ProjectRest()
    /// When a parked event was last let out to see whether the gateway answers.
    var probeSentAt = MonotonicTime(nanos: .min / 2)
    /// Of which class those that wait are being looked at; which of it have to wait (again).
    @exclusivity(unchecked) var admittedClass: EventClass?
    @exclusivity(unchecked) var waitingAgain: [TargetInFlight] = []
    /// What guards its tokens against a credential that does not fit them.
    private(set) var fuse: FuseName
    /// Whether the gateway's last word on our credential was no.
    @exclusivity(unchecked) var isRefused = false
    /// Answers that the fuse has not been told of yet.
    @exclusivity(unchecked) var answersUncounted = 0
    /// Whether it was taken out and its pool closed: nothing more is sent through it.
    @exclusivity(unchecked) var isDropped = false
    /// When the connections were last replaced on a gateway's word.
    var replacedAt = MonotonicTime(nanos: .min / 2)
    @exclusivity(unchecked) private var clockReadAt = MonotonicTime(nanos: .min / 2)
    /// The provider token that a request of this turn asked for, and the turn's time.
    @exclusivity(unchecked) private var turnsToken: ProviderToken?
    @exclusivity(unchecked) private var turn = MonotonicTime(nanos: .min)

    /// What builds and authorises the requests.
    enum Sender {
        case apns(APNsRenderer, APNsCredential)
        /// The connection itself shows who sends.
        case certificateAPNs(APNsRenderer)
        case fcm(FCMRenderer, AccessTokens)
        case webpush(WebPushSender)
        case expo(ExpoGateway)
    }

    /// A push service of browsers.
    struct PushService {
        /// Scheme, host and port.
        let origin: String
        /// Which browsers' it is.
        let family: WebPushService
    }

    init(
        app: String, gateway: Gateway, environment: GatewayEnvironment, credential: String,
        pace: PoolPace, sender: Sender, service: PushService? = nil, metrics: BulkheadMetrics,
        inFlightMax: Int, breaker: Breaker
    ) {
        self.breaker = breaker
        self.service = service
        budget = Budget(maximum: inFlightMax)
        fuse = FuseName(
            app: app, gateway: gateway, environment: environment, credential: credential)
        self.app = app
        self.gateway = gateway
        self.environment = environment
        self.pace = pace
        self.sender = sender
        self.metrics = metrics
        resultMembers = ResultRecord.bulkheadMembers(gateway, environment)
    }

    /// The provider token to send with. The credential is the process's and behind a lock; it is
    /// asked once in a turn.
    func providerToken(
        of credential: APNsCredential, at now: MonotonicTime, wall: UnixMillis
    ) throws(OpenSSLError) -> ProviderToken {
        if turn == now, let turnsToken { return turnsToken }
        let token = try credential.token(at: now, wall: wall)
        turnsToken = token
        turn = now
        return token
    }

    /// Sends what is built from now on with another credential, and over other connections where
    /// those are bound to one. What is under way goes on as it is.
    func take(_ sender: Sender, credential: String, pace: PoolPace? = nil) {
        self.sender = sender
        if let pace { self.pace = pace }
        fuse = FuseName(
            app: app, gateway: gateway, environment: environment, credential: credential)
        turnsToken = nil
        credentialEpoch &+= 1
    }

    /// Whether the time in an answer is to be looked at again.
    func isClockDue(at now: MonotonicTime) -> Bool {
        guard now - clockReadAt >= ClockWatch.interval else { return false }
        clockReadAt = now
        return true
    }

    /// Asks the credential again, whatever the turn.
    func forgetProviderToken() { turnsToken = nil }
}

/// An app as one lane sees it: where its addresses are sent. Loop-confined.
internal final class LaneApp {
    let name: String
    @exclusivity(unchecked) private(set) var bulkheads: [Bulkhead] = []
    /// The push services of browsers; nil without web push. Their bulkheads stand behind the first
    /// one of web push, which stands for all and sends nothing.
    var webPush: WebPushServices?
    /// Its Expo project; nil without Expo.
    var expo: ExpoGateway?

    init(name: String) { self.name = name }

    func add(_ bulkhead: Bulkhead) { bulkheads.append(bulkhead) }

    func remove(_ bulkhead: Bulkhead) { bulkheads.removeAll { $0 === bulkhead } }

    /// The bulkhead that serves an address, or stands for those that do; nil when the app is not
    /// configured for its gateway.
    func bulkhead(_ gateway: Gateway, _ environment: GatewayEnvironment) -> Bulkhead? {
        for index in bulkheads.indices
        where bulkheads[index].gateway == gateway && bulkheads[index].environment == environment {
            return bulkheads[index]
        }
        return nil
    }
}
