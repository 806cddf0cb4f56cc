// The fuse. A wrong credential, topic or environment makes a gateway call good tokens bad, one
// after another, until none is left. So the verdicts that such a mistake can cause are counted,
// for all processes together, and when too many of the answers of a few minutes are of that kind
// the fuse trips: from then on such verdicts are held back. Their addresses are quarantined,
// neither sent to nor given up, until an operator releases or discards them.

public import Base

/// When a fuse trips.
public struct FusePolicy: Sendable, Equatable {
    /// Tokens judged, in thousandths of the answers of the window; 1 to 1000.
    public var permille = 50
    /// So many tokens at least, however few answers there are.
    public var tokensMin = 50
    /// How far back verdicts and answers count; whole minutes.
    public var window = TimeSpan.minutes(5)

    /// Verdicts weigh once they are this old: gateways' answers, which lanes pass on in sums, are
    /// known later than a verdict that is among them.
    internal static let weighedAfter = TimeSpan.seconds(2)

    /// 5 % and at least 50 tokens within 5 minutes.
    public init() {}

    internal func trips(tokens: Int, answers: Int) -> Bool {
        tokens >= tokensMin && tokens * 1_000 >= permille * answers
    }
}

/// What a fuse guards: a credential as it is used for one app in one environment of a gateway.
public struct FuseName: Hashable, Sendable {
    /// The app.
    public var app: String
    /// The gateway.
    public var gateway: Gateway
    /// The gateway's environment.
    public var environment: GatewayEnvironment
    /// Which key or account; no secret.
    public var credential: String

    /// A name. `app` holds no slash.
    public init(
        app: String, gateway: Gateway, environment: GatewayEnvironment, credential: String
    ) {
        self.app = app
        self.gateway = gateway
        self.environment = environment
        self.credential = credential
    }

    /// All parts in one text, part of keys in Redis.
    internal var text: String {
        "\(app)/\(gateway.rawValue)/\(environment.rawValue)/\(credential)"
    }

    internal init?(text: String) {
        let parts = text.split(separator: "/", maxSplits: 3, omittingEmptySubsequences: false)
        guard parts.count == 4, let gateway = Gateway(rawValue: String(parts[1])),
            let environment = GatewayEnvironment(rawValue: String(parts[2]))
        else { return nil }
        self.init(
            app: String(parts[0]), gateway: gateway, environment: environment,
            credential: String(parts[3]))
    }

    /// The id of the fuse when it trips at that moment.
    internal func id(at time: UnixMillis) -> String {
        "\(app).\(gateway.rawValue).\(environment.rawValue).\(time.value)"
    }
}

/// A fuse that has tripped and was not settled yet.
public struct TrippedFuse: Sendable, Equatable {
    /// Names this event; in the records of the addresses it holds.
    public var id: String
    /// What it guards.
    public var name: FuseName
    /// When it tripped.
    public var since: UnixMillis
    /// The reason that the gateway gave last.
    public var reason: String
    /// How many addresses it holds.
    public var held: Int

    /// What most likely is wrong, as a sentence for an operator.
    public var likelyCause: String {
        switch reason {
        case "BadDeviceToken":
            "tokens of the other APNs environment: builds signed for development register as "
                + "production, or the other way round; check what the app reports as environment"
        case "DeviceTokenNotForTopic":
            "apps.\(name.app).apns.topic is not the bundle id of the app these tokens are from"
        case "SENDER_ID_MISMATCH":
            "apps.\(name.app).fcm.service_account belongs to another Firebase project than the app"
        case "INVALID_ARGUMENT":
            "the registry hands out what are no FCM tokens, cut or of another kind"
        case "VapidPkHashMismatch":
            "the subscriptions were made with another VAPID key"
        default:
            "credential, topic or environment of apps.\(name.app).\(name.gateway.rawValue) do not "
                + "fit the devices"
        }
    }
}

/// What an operator decides about the addresses a fuse holds.
public enum FuseSettlement: String, Sendable, CaseIterable {
    /// The mistake was ours: they are sent to again.
    case release
    /// The gateway was right: the verdicts take effect.
    case discard
}

/// A wave of tokens that die in the ordinary way, well above what the last days saw.
public struct ChurnAlarm: Sendable, Equatable {
    /// The app.
    public var app: String
    /// The gateway.
    public var gateway: Gateway
    /// The gateway's environment.
    public var environment: GatewayEnvironment
    /// Tokens that died within the hour so far.
    public var dead: Int
}

/// What a writer finds out while it applies changes.
public enum IndexNotice: Sendable {
    /// A fuse has tripped.
    case fuseTripped(TrippedFuse)
    /// Unusually many tokens die.
    case churn(ChurnAlarm)
    /// A record that belongs on `push.invalidations`. Writing it twice does no harm; if it is
    /// never written, what it says is lost with the store.
    case publish(InvalidationRecord)
    /// All installs were looked at for addresses that were not seen for too long.
    case swept(SweepReport)
    /// Whether a server of the store may evict keys; said again now and then.
    case evicts(Bool)
}

extension InvalidationRecord {
    /// The fuse that the verdict concerns: only those that a misconfiguration can cause name the
    /// credential.
    internal var fuseName: FuseName? {
        guard let gateway, let environment, let credential else { return nil }
        return FuseName(
            app: addressID.app, gateway: gateway, environment: environment, credential: credential)
    }

    /// Whether the fuse counts it.
    internal var isCounted: Bool {
        (verdict == .suspend || verdict == .invalidate) && fuseName != nil
            && (origin == .gateway || origin == .receipt)
    }

    /// Whether it is a token's ordinary death, of which many at once are only worth a word.
    internal var isChurn: Bool {
        verdict == .invalidate && credential == nil
            && (origin == .gateway || origin == .receipt)
    }

    /// What an operator's decision about the fuse that it names makes of a held verdict.
    internal func settled(by settlement: FuseSettlement) -> InvalidationRecord {
        var record = self
        record.verdict = settlement == .release ? .release : held ?? .suspend
        record.held = nil
        record.origin = .operator
        return record
    }

    /// What it decides about its fuse when it is the last one; nil when an operator has no part in
    /// it.
    internal var settlement: FuseSettlement? {
        switch verdict {
        case .quarantine, .forget: nil
        case .release: .release
        default: .discard
        }
    }

    /// The same verdict held back by a fuse that has tripped.
    public func held(by fuseID: String) -> InvalidationRecord {
        var record = self
        record.held = verdict
        record.verdict = .quarantine
        record.fuseID = fuseID
        return record
    }
}
