// Credentials, and the authorities that connections trust, change while the process runs: on SIGHUP,
// and when a file has changed. A new one is tried at its gateway before a push depends on it. Whatever is wrong with it is told once, and the old
// one stays; a file that is still being written is left alone until it rests.

internal import Base
internal import Config
internal import Gateways
internal import Pipeline
internal import Synchronization
internal import Telemetry

/// Loads credentials anew for a running service. Used by one thread; answers come from another.
internal final class CredentialReload {
    /// Tries a credential and hands over what its gateway said, from any thread.
    typealias Prove =
        (PushApp, Gateway, _ done: @escaping @Sendable ([CredentialTrial]) -> Void) -> Void

    /// An app's credential at a gateway.
    struct Place: Hashable {
        let app: String
        let gateway: Gateway
    }

    /// A credential that was read and does not serve yet.
    private struct Candidate {
        let app: PushApp
        let files: [String]
        /// Which trial's answers count; older ones are of another candidate.
        let round: Int
        var failures = 0
        /// When it is tried again; nil while it is being tried.
        var retryAt: MonotonicTime?
        /// What the gateway said about it, while the one in force is asked about for comparison.
        var trials: [CredentialTrial]?
    }

    private let path: String
    private let log: Log
    private let counters: [Place: [Result: Counter]]
    private let loader: PushAppLoader
    private let prove: Prove
    private let replace: (PushApp, Gateway) -> String?
    private let attend: ([PushApp]) -> Void
    private let answers = CredentialAnswers()

    private var configuration: Configuration
    private var apps: [PushApp]
    private var candidates: [Place: Candidate] = [:]
    /// What is wrong at a place, so that it is told once.
    private var problems: [Place: String] = [:]
    private var rounds = 0
    /// The files as they were when they were read last, and when they were looked at last.
    private var taken: [String: FileState?]
    private var looked: [String: FileState?]

    /// The first and the longest wait after a trial that said nothing.
    private static let unclearWait = (min: TimeSpan.seconds(1), max: TimeSpan.seconds(30))
    /// The same after a refusal: Google's keys take a minute or two until they are known.
    private static let refusedWait = (min: TimeSpan.seconds(15), max: TimeSpan.minutes(5))

    /// Watches the files that `configuration`, read from `path`, names.
    init(
        path: String, _ configuration: Configuration, apps: [PushApp], loader: PushAppLoader,
        registry: MetricsRegistry, log: Log, prove: @escaping Prove,
        replace: @escaping (PushApp, Gateway) -> String?,
        attend: @escaping ([PushApp]) -> Void = { _ in }
    ) {
        self.path = path
        self.configuration = configuration
        self.apps = apps
        self.loader = loader
        counters = Self.counters(apps, registry)
        self.log = log
        self.prove = prove
        self.replace = replace
        self.attend = attend
        taken = Self.states(of: configuration, at: path)
        looked = taken
        for place in counters.keys {
            registry.gauge(
                "bugle_credentials_pending",
                help: "1 while a credential's file has changed and it does not serve, for what "
                    + "reason ever.",
                labels: [("app", place.app), ("gateway", place.gateway.rawValue)]
            ) { [answers] in answers.isPending(place) ? 1 : 0 }
        }
    }

    /// Looks at files and answers; to be called about twice a second.
    func poll(at now: MonotonicTime) {
        for (place, round, trials) in answers.take() { answered(place, round, trials, at: now) }
        let states = Self.states(of: configuration, at: path)
        if states != taken, states == looked { reload(states, at: now) }
        looked = states
        for (place, candidate) in candidates where candidate.retryAt.map({ $0 <= now }) ?? false {
            tryOut(place)
        }
        answers.setPending(Set(candidates.keys).union(problems.keys))
    }

    /// Reads everything anew, changed or not.
    func reload(at now: MonotonicTime) {
        reload(Self.states(of: configuration, at: path), at: now)
        poll(at: now)
    }

    // MARK: Reading

    private func reload(_ states: [String: FileState?], at now: MonotonicTime) {
        taken = states
        // What is wrong with the file itself is told by whoever reads its routes.
        do throws(Failure) {
            configuration = try ConfigurationFile.load(path: path)
        } catch {}
        loader.sharedCAFile = configuration.egress.caFile
        for app in apps {
            guard let settings = configuration.app(named: app.name) else { continue }
            for gateway in Gateway.allCases where app.has(gateway) {
                read(gateway, of: settings, for: app)
            }
        }
        taken.merge(Self.states(of: configuration, at: path)) { before, _ in before }
    }

    private func read(_ gateway: Gateway, of settings: Configuration.App, for app: PushApp) {
        let place = Place(app: app.name, gateway: gateway)
        let files = configuration.credentialFiles(of: settings, at: gateway)
        let before = files.map { FileState($0) }
        var loaded = PushApp(name: app.name)
        do throws(PushAppError) {
            try loader.load(gateway, of: settings, into: &loaded)
        } catch {
            candidates[place] = nil
            return failed(place, error.file.map { [$0] } ?? files, error.problem)
        }
        // Written while it was read: the next look sees another state of it.
        guard files.map({ FileState($0) }) == before else { return }
        guard let changed = app.taking(gateway, from: loaded) else {
            // As in force: nothing to do, or what was wrong was taken back.
            candidates[place] = nil
            problems[place] = nil
            return
        }
        if let hindrance = app.hindrance(toTake: gateway, from: loaded) {
            candidates[place] = nil
            return failed(place, files, hindrance)
        }
        rounds += 1
        candidates[place] = Candidate(app: changed, files: files, round: rounds)
        tryOut(place)
    }

    private static func states(
        of configuration: Configuration, at path: String
    ) -> [String: FileState?] {
        var states: [String: FileState?] = [path: FileState(path)]
        for app in configuration.apps {
            for gateway in Gateway.allCases {
                for file in configuration.credentialFiles(of: app, at: gateway) {
                    states[file] = FileState(file)
                }
            }
        }
        return states
    }

    // MARK: Trials

    private func tryOut(_ place: Place) {
        guard let candidate = candidates[place] else { return }
        candidates[place]?.retryAt = nil
        candidates[place]?.trials = nil
        ask(candidate.app, place, candidate.round)
    }

    private func ask(_ app: PushApp, _ place: Place, _ round: Int) {
        prove(app, place.gateway) { [answers] trials in answers.add(place, round, trials) }
    }

    private func answered(
        _ place: Place, _ round: Int, _ trials: [CredentialTrial], at now: MonotonicTime
    ) {
        guard let candidate = candidates[place], candidate.round == round else { return }
        if let own = candidate.trials { return compare(place, own, trials, at: now) }
        let refused = trials.filter(\.isRefused)
        if !trials.isEmpty, trials.allSatisfy({ $0.verdict == .proven }) { return take(place) }
        if !refused.isEmpty, refused.count < trials.count,
            let app = apps.first(where: { $0.name == place.app })
        {
            // A key of one environment may follow another of the same.
            candidates[place]?.trials = trials
            return ask(app, place, round)
        }
        putOff(place, trials, at: now)
    }

    /// A credential is good enough that does all that the one in force does.
    private func compare(
        _ place: Place, _ own: [CredentialTrial], _ former: [CredentialTrial],
        at now: MonotonicTime
    ) {
        let works = own.filter { $0.verdict == .proven }.map(\.environment)
        let worked = former.filter { !$0.isRefused }.map(\.environment)
        if !works.isEmpty, worked.allSatisfy(works.contains) { return take(place) }
        putOff(place, own, at: now)
    }

    private func putOff(_ place: Place, _ trials: [CredentialTrial], at now: MonotonicTime) {
        guard var candidate = candidates[place] else { return }
        let isRefused = trials.contains(where: \.isRefused)
        let bounds = isRefused ? Self.refusedWait : Self.unclearWait
        let wait = min(bounds.min * (1 << Int64(min(candidate.failures, 10))), bounds.max)
        candidate.failures += 1
        candidate.retryAt = now + wait
        candidate.trials = nil
        candidates[place] = candidate
        let words = trials.compactMap(\.complaint)
        failed(
            place, candidate.files,
            words.isEmpty ? "the gateway did not answer" : words.joined(separator: "; "))
    }

    private func take(_ place: Place) {
        guard let candidate = candidates.removeValue(forKey: place),
            let index = apps.firstIndex(where: { $0.name == place.app }),
            let app = apps[index].taking(place.gateway, from: candidate.app)
        else { return }
        if let text = replace(app, place.gateway) { return failed(place, candidate.files, text) }
        let isCredentialNew = !app.hasSameCredential(as: apps[index], at: place.gateway)
        apps[index] = app
        problems[place] = nil
        // What was replaced needs no tokens any more; what waits still does.
        attend(apps + candidates.values.map(\.app))
        count(place, .replaced)
        log.info(
            isCredentialNew
                ? "credential replaced: the new one was tried, and pushes carry it from now on"
                : "trusted authorities replaced: the gateway was tried, and connections are made anew",
            [
                "app": LogValue(place.app), "gateway": LogValue(place.gateway.rawValue),
                "file": LogValue(candidate.files.joined(separator: ", ")),
                "credential": LogValue(app.credentialName(at: place.gateway) ?? "an access token"),
            ])
    }

    // MARK: Telling

    private func failed(_ place: Place, _ files: [String], _ problem: String) {
        guard problems[place] != problem else { return }
        problems[place] = problem
        count(place, .failed)
        log.error(
            "the old credential stays: the new one is no good",
            [
                "app": LogValue(place.app), "gateway": LogValue(place.gateway.rawValue),
                "file": LogValue(files.joined(separator: ", ")), "reason": LogValue(problem),
            ])
    }

    private func count(_ place: Place, _ result: Result) { counters[place]?[result]?.add(1) }

    private enum Result: String, CaseIterable { case replaced, failed }

    private static func counters(
        _ apps: [PushApp], _ registry: MetricsRegistry
    ) -> [Place: [Result: Counter]] {
        var counters: [Place: [Result: Counter]] = [:]
        for app in apps {
            for gateway in Gateway.allCases where app.has(gateway) {
                let place = Place(app: app.name, gateway: gateway)
                for result in Result.allCases {
                    counters[place, default: [:]][result] = registry.counter(
                        "bugle_credential_reloads_total",
                        help: "Credentials that changed: taken into use, or found to be no good.",
                        labels: [
                            ("app", app.name), ("gateway", gateway.rawValue),
                            ("result", result.rawValue),
                        ])
                }
            }
        }
        return counters
    }
}

/// Answers on their way from the prover's thread.
private final class CredentialAnswers: Sendable {
    typealias Answer = (CredentialReload.Place, round: Int, [CredentialTrial])

    /// What does not serve and should; for the metrics.
    private let pending = Mutex<Set<CredentialReload.Place>>([])
    private let answers = Mutex<[Answer]>([])

    func setPending(_ places: Set<CredentialReload.Place>) { pending.withLock { $0 = places } }

    func isPending(_ place: CredentialReload.Place) -> Bool {
        pending.withLock { $0.contains(place) }
    }

    func add(_ place: CredentialReload.Place, _ round: Int, _ trials: [CredentialTrial]) {
        answers.withLock { $0.append((place, round, trials)) }
    }

    func take() -> [Answer] {
        answers.withLock { answers in
            defer { answers.removeAll() }
            return answers
        }
    }
}

extension CredentialTrial {
    fileprivate var isRefused: Bool {
        if case .refused = verdict { return true }
        return false
    }

    /// What is wrong, in words; nil when nothing is.
    fileprivate var complaint: String? {
        let place = environment == .none ? "" : "\(environment.rawValue): "
        switch verdict {
        case .proven: return nil
        case .refused(_, let text), .unclear(let text): return place + text
        }
    }
}
