// Looks after the tokens of a process's credentials together with the other replicas: one of them
// makes a token, all use it. Apple counts new provider tokens and Google calls of its token endpoint,
// and a fleet that starts at once would look like an attack.
//
// While the fleet is being asked, this process makes no token of its own as long as it can do without
// (`hold`). When the store does not answer, or whoever wanted to make the token has not done so in
// time, the process goes on alone: sharing is a courtesy, never a condition.

public import Base
public import EventLoop
public import Gateways
internal import Synchronization
public import Telemetry

/// What the fleet says about a token.
public enum FleetAnswer: Sendable, Equatable {
    /// This one is good.
    case token(SealedToken)
    /// This process is to make one, and to publish it.
    case make
    /// Another process makes one.
    case wait
    /// Nobody can be asked.
    case unavailable
}

/// Where the replicas of a fleet agree on tokens. Confined to the keeper's loop.
public protocol FleetTokenStore: AnyObject {
    /// Asks for a token that has used up less than `percent` of its life and is not the refused one,
    /// or for the right to make one, which lapses after `FleetLimits.makingTime`. `done` is called
    /// once, perhaps within this call.
    func ask(
        _ name: String, percent: Int64, butNot refused: String?,
        _ done: @escaping (FleetAnswer) -> Void)
    /// Hands a token to the others, unless theirs is newer; gives back the right to make one.
    func publish(_ name: String, _ token: SealedToken)
    /// Ends the connection.
    func close()
}

/// The bounds of agreeing on tokens.
public enum FleetLimits {
    /// How long one replica has to make a token before another may.
    public static let makingTime = TimeSpan.seconds(10)
    /// How long a token of others is waited for before the process makes its own.
    public static let patience = TimeSpan.seconds(3)
    /// Between two questions while another replica makes a token.
    public static let askInterval = TimeSpan.milliseconds(200)
    /// How long a process without a token tries to reach the store.
    public static let unavailablePatience = TimeSpan.seconds(1)
    /// Between two questions after there was nobody to ask.
    public static let retryInterval = TimeSpan.seconds(1)
    /// How long a process whose keeper has died makes no token.
    public static let hold = TimeSpan.seconds(3)
    /// How long a start waits for the tokens of the fleet.
    public static let startPatience = TimeSpan.seconds(2)
}

/// When to ask the fleet, and when to go on alone. Pure.
internal struct FleetTokenPlan {
    enum Step: Equatable {
        /// Nothing now.
        case wait
        /// Ask the fleet.
        case ask
        /// Make a token and publish it.
        case make
    }

    private var dueSince: MonotonicTime?
    private var nextAskAt = MonotonicTime(nanos: .min)
    private var isAsking = false
    private var mayMake = false
    /// Whether the last token was made without the fleet's word.
    private(set) var isAlone = false

    /// What to do about a token that is due or not, and
    /// of which the fleet's word is waited for so long.
    mutating func step(isDue: Bool, patience: TimeSpan, at now: MonotonicTime) -> Step {
        guard isDue else {
            dueSince = nil
            mayMake = false
            return .wait
        }
        let since = dueSince ?? now
        dueSince = since
        if mayMake {
            mayMake = false
            nextAskAt = now + FleetLimits.retryInterval
            return .make
        }
        if isAsking { return .wait }
        if now - since >= patience {
            isAlone = true
            dueSince = now
            nextAskAt = now + FleetLimits.retryInterval
            return .make
        }
        guard now >= nextAskAt else { return .wait }
        isAsking = true
        return .ask
    }

    /// Takes the fleet's answer; `isTaken` says whether its token could be used.
    mutating func answered(
        _ answer: FleetAnswer, isTaken: Bool, hasToken: Bool, at now: MonotonicTime
    ) {
        isAsking = false
        switch answer {
        case .token:
            if isTaken { isAlone = false }
            nextAskAt = now + FleetLimits.retryInterval
            // What the others use is of no use here, such as a token that was refused.
            if !isTaken, !hasToken {
                isAlone = true
                mayMake = true
            }
        case .make:
            isAlone = false
            mayMake = true
        case .wait: nextAskAt = now + FleetLimits.askInterval
        case .unavailable:
            nextAskAt = now + FleetLimits.askInterval
            // Without a token pushes wait; with one there is time to ask again.
            if !hasToken, let dueSince, now - dueSince >= FleetLimits.unavailablePatience {
                isAlone = true
                mayMake = true
            }
        }
    }
}

/// The keeper of a process's tokens. Every method may be called from any thread.
public final class TokenKeeper: Sendable {
    private let thread: LoopThread
    private let box: KeeperBox

    /// Starts the keeper's thread. `makeStore` is called on it.
    public init(
        _ access: GatewayAccess, registry: MetricsRegistry, log: Log,
        store makeStore: @escaping @Sendable (EventLoop) -> any FleetTokenStore
    ) throws(DispatcherError) {
        let box = KeeperBox()
        self.box = box
        do throws(SystemError) {
            thread = try LoopThread.start(name: "tokens") { loop in
                let keeper = FleetTokens(loop, makeStore(loop), access, registry, log)
                box.tokens = keeper
                keeper.tick()
            }
        } catch {
            throw .system("the thread that keeps tokens: \(error)")
        }
    }

    /// Looks after the credentials of these apps, and no others.
    public func keep(_ apps: [PushApp]) {
        thread.handle.submit { [box] in box.tokens?.keep(apps) }
    }

    /// Waits until every credential has a token, or went on alone, but no longer than that.
    public func waitForTokens(upTo span: TimeSpan = FleetLimits.startPatience) {
        let isReady = Semaphore()
        thread.handle.submit { [box] in
            guard let tokens = box.tokens else { return isReady.signal() }
            tokens.whenReady { isReady.signal() }
        }
        _ = isReady.wait(upTo: span)
    }

    /// Looks after one more credential, and calls back when it has a token or went on alone, in
    /// `FleetLimits.patience` at the latest.
    public func prepare(
        _ app: PushApp, _ gateway: Gateway, _ done: @escaping @Sendable () -> Void
    ) {
        thread.handle.submit { [box] in
            guard let tokens = box.tokens else { return done() }
            tokens.prepare(app, gateway)
            tokens.whenReady(done)
        }
    }

    /// Ends the thread; the credentials look after themselves from then on.
    public func stop() {
        thread.handle.submit { [box] in box.tokens?.close() }
        thread.handle.stop()
        thread.join()
    }
}

/// Holds the keeper's tokens for its thread.
///
/// `@unchecked Sendable`: written on the loop's thread before `LoopThread.start` returns, and read by
/// jobs that run there.
private final class KeeperBox: @unchecked Sendable {
    var tokens: FleetTokens?
}
