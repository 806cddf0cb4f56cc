internal import Base
internal import HTTP2
internal import Synchronization

/// What is known about a request when faults are chosen for it.
struct FaultSubject {
    let service: SimulatedService
    let token: String
    let connection: Int
    let connectionRequest: Int
    let at: MonotonicTime
}

/// What goes wrong with one request.
struct Faults {
    var delay = TimeSpan.zero
    /// The effect that decides the answer, or nil when the gateway's rules do.
    var decisive: FaultEffect?
    /// Effects on the connection, in the plan's order.
    var onConnection: [FaultEffect] = []

    static let none = Faults()
}

/// Runs a plan: counts what each rule has met and draws its lots. Safe on any thread.
///
/// The k-th draw of a rule depends on the seed, the rule's place and k only, so that a plan does
/// the same whenever requests come in the same order.
final class FaultEngine: Sendable {
    private struct State: Sendable {
        var plan: FaultPlan
        var rules: [CountedRule]
        var start: MonotonicTime
    }

    private let state: Mutex<State>
    /// Lets a load test without faults skip the lock.
    private let isIdle: Atomic<Bool>

    init(_ plan: FaultPlan, at start: MonotonicTime) {
        isIdle = Atomic(plan.rules.isEmpty)
        state = Mutex(State(plan: plan, rules: Self.rules(plan), start: start))
    }

    var plan: FaultPlan { state.withLock { $0.plan } }

    /// Puts another plan into force; its counts start from zero.
    func replace(_ plan: FaultPlan, at start: MonotonicTime) {
        state.withLock { $0 = State(plan: plan, rules: Self.rules(plan), start: start) }
        isIdle.store(plan.rules.isEmpty, ordering: .releasing)
    }

    func faults(for subject: FaultSubject) -> Faults {
        if isIdle.load(ordering: .acquiring) { return .none }
        return state.withLock { state in
            var faults = Faults()
            let elapsed = subject.at - state.start
            for index in state.rules.indices where !state.rules[index].rule.effect.isOnAccept {
                guard state.rules[index].applies(to: subject, elapsed: elapsed) else { continue }
                switch state.rules[index].rule.effect {
                case .delay(let latency):
                    faults.delay = faults.delay + latency.draw(&state.rules[index].random)
                case .goAway, .changeSettings, .withholdWindowUpdates, .ignorePings:
                    faults.onConnection.append(state.rules[index].rule.effect)
                default:
                    faults.decisive = state.rules[index].rule.effect
                    return faults
                }
            }
            return faults
        }
    }

    func acceptance(
        _ service: SimulatedService, connection: Int, at now: MonotonicTime
    ) -> Acceptance {
        if isIdle.load(ordering: .acquiring) { return .serve }
        let subject = FaultSubject(
            service: service, token: "", connection: connection, connectionRequest: 0, at: now)
        return state.withLock { state in
            let elapsed = now - state.start
            for index in state.rules.indices {
                guard case .accept(let acceptance) = state.rules[index].rule.effect,
                    state.rules[index].applies(to: subject, elapsed: elapsed)
                else { continue }
                return acceptance
            }
            return .serve
        }
    }

    private static func rules(_ plan: FaultPlan) -> [CountedRule] {
        plan.rules.enumerated().map { index, rule in
            var seeds = SeededRandom(seed: plan.seed ^ UInt64(index + 1) &* 0x9E37_79B9)
            return CountedRule(rule: rule, random: SeededRandom(seed: seeds.next()))
        }
    }
}

/// A rule and what it has met so far.
private struct CountedRule: Sendable {
    let rule: FaultRule
    var met = 0
    var random: SeededRandom

    mutating func applies(to subject: FaultSubject, elapsed: TimeSpan) -> Bool {
        let match = rule.match
        guard meets(match, subject, elapsed) else { return false }
        met += 1
        let number = met - match.skip
        guard number > 0, (number - 1) % max(match.every, 1) == 0 else { return false }
        if let count = match.count, (number - 1) / max(match.every, 1) >= count { return false }
        guard let probability = match.probability else { return true }
        return Double.random(in: 0..<1, using: &random) < probability
    }

    private func meets(
        _ match: FaultMatch, _ subject: FaultSubject, _ elapsed: TimeSpan
    ) -> Bool {
        if let services = match.services {
            guard services.contains(subject.service) else { return false }
        } else if subject.service == .oauth {
            return false
        }
        if let from = match.from, elapsed < from { return false }
        if let until = match.until, elapsed > until { return false }
        if let number = match.connection, number != subject.connection { return false }
        if let number = match.connectionRequest, number != subject.connectionRequest {
            return false
        }
        if let prefix = match.tokenPrefix, !subject.token.utf8.starts(with: prefix.utf8) {
            return false
        }
        if let pattern = match.tokenPattern {
            return Glob.matches(Array(subject.token.utf8), Array(pattern.utf8))
        }
        return true
    }
}

/// Patterns with `*` and `?`.
enum Glob {
    static func matches(_ text: [UInt8], _ pattern: [UInt8]) -> Bool {
        var textIndex = 0
        var patternIndex = 0
        var star: (pattern: Int, text: Int)?
        while textIndex < text.count {
            let symbol = patternIndex < pattern.count ? pattern[patternIndex] : nil
            if symbol == UInt8(ascii: "*") {
                star = (patternIndex, textIndex)
                patternIndex += 1
            } else if symbol == UInt8(ascii: "?") || symbol == text[textIndex] {
                textIndex += 1
                patternIndex += 1
            } else if let last = star {
                star = (last.pattern, last.text + 1)
                textIndex = last.text + 1
                patternIndex = last.pattern + 1
            } else {
                return false
            }
        }
        return pattern[patternIndex...].allSatisfy { $0 == UInt8(ascii: "*") }
    }
}
