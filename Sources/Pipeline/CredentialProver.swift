// Tries credentials at their gateways, before they serve anybody and for `check`: with requests that
// cannot reach a device. The tokens that are made for it are those that pushes carry later.

public import Base
internal import Crypto
internal import EventLoop
public import Gateways
internal import HTTP2
internal import Synchronization

/// What a gateway said about a credential in one of its environments.
public struct CredentialTrial: Sendable {
    /// The environment; `none` where a gateway has only one.
    public let environment: GatewayEnvironment
    /// What was said.
    public let verdict: CredentialVerdict
    /// How far the gateway's clock is ahead of this machine's, when it told its time.
    public let clockAhead: TimeSpan?

    /// What was said.
    public init(
        environment: GatewayEnvironment, verdict: CredentialVerdict, clockAhead: TimeSpan?
    ) {
        self.environment = environment
        self.verdict = verdict
        self.clockAhead = clockAhead
    }
}

/// Tries credentials on a thread of its own. Every method may be called from any thread.
public final class CredentialProver: Sendable {
    private let thread: LoopThread
    private let access: GatewayAccess
    private let box: LoopBox

    /// How long one trial may take.
    public static let patience = TimeSpan.seconds(20)

    /// Starts the thread.
    public init(_ access: GatewayAccess = GatewayAccess()) throws(DispatcherError) {
        self.access = access
        do throws(SystemError) {
            let box = LoopBox()
            self.box = box
            thread = try LoopThread.start(name: "prover") { box.loop = $0 }
        } catch {
            throw .system("the thread that tries credentials: \(error)")
        }
    }

    /// Tries an app's credential at a gateway in all of its environments, one after the other, and
    /// hands over what was said, on the prover's thread.
    public func prove(
        _ app: PushApp, _ gateway: Gateway, _ done: @escaping @Sendable ([CredentialTrial]) -> Void
    ) {
        thread.handle.submit { [box, access] in
            guard let loop = box.loop else { return done([]) }
            ProofSeries(app, gateway, access, loop, done).next()
        }
    }

    /// As `prove`, and waits for the end.
    public func prove(_ app: PushApp, _ gateway: Gateway) -> [CredentialTrial] {
        let outcome = ProofOutcome()
        prove(app, gateway) { outcome.set($0) }
        return outcome.wait(upTo: Self.patience + Self.patience)
    }

    /// Ends the thread; what is being tried is not told any more.
    public func stop() {
        thread.handle.stop()
        thread.join()
    }
}

/// Holds the loop for its thread.
///
/// `@unchecked Sendable`: written on the loop's thread before `LoopThread.start` returns, and read
/// by jobs that run there.
private final class LoopBox: @unchecked Sendable {
    var loop: EventLoop?
}

/// Carries what was said to a thread that waits for it.
private final class ProofOutcome: Sendable {
    private let trials = Mutex<[CredentialTrial]>([])
    private let isSet = Semaphore()

    func set(_ trials: [CredentialTrial]) {
        self.trials.withLock { $0 = trials }
        isSet.signal()
    }

    func wait(upTo span: TimeSpan) -> [CredentialTrial] {
        _ = isSet.wait(upTo: span)
        return trials.withLock { $0 }
    }
}
