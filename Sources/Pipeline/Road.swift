// The roads by which an event reaches a lane: the events topics, and the topics in which it waited.

public import Base
internal import Kafka

/// What fails together: where an app's events for a gateway wait while it is down.
public struct ParkingLot: Hashable, Sendable {
    /// The gateway.
    public let gateway: Gateway
    /// The gateway's environment.
    public let environment: GatewayEnvironment

    /// The lots of all gateways that are served.
    public static let all = [
        ParkingLot(gateway: .apns, environment: .production),
        ParkingLot(gateway: .apns, environment: .sandbox),
        ParkingLot(gateway: .fcm, environment: .none),
        ParkingLot(gateway: .webpush, environment: .none),
        ParkingLot(gateway: .expo, environment: .none),
    ]

    /// The name of its topic: `<base>-apns-production` and so on.
    public func topic(of base: String) -> String {
        "\(base)-\(gateway.rawValue)-\(environment.rawValue)"
    }
}

/// Where something waits that does not wait for a time.
internal enum WaitingPlace: Hashable, Sendable {
    /// For a bulkhead.
    case lot(ParkingLot)
    /// For an operator's word.
    case held

    /// The name of the topic of held events: `<base>-held`.
    static func heldTopic(of base: String) -> String { "\(base)-held" }
}

/// The names of the parking topics, the one of held events included.
public enum ParkedTopics {
    /// All of them, for a base such as `push.events-parked`.
    public static func names(of base: String) -> [String] {
        ParkingLot.all.map { $0.topic(of: base) } + [WaitingPlace.heldTopic(of: base)]
    }
}

/// Where a partition's records come from.
internal enum Road: Hashable, Sendable {
    /// From the publishers.
    case events
    /// From a retry topic: due when its tier is over.
    case retry(RetryTier)
    /// From a parking topic: due when its bulkhead takes requests again.
    case parked(ParkingLot)
    /// From the topic of what an operator holds back: due when it is resumed.
    case held
    /// Not an event but a ticket of Expo's: due when its receipt may be asked for.
    case tickets

    /// Whether its records wait for something else than a time.
    var isParking: Bool {
        switch self {
        case .parked, .held: true
        case .events, .retry, .tickets: false
        }
    }

    /// Whether its records are events that were put off.
    var isOfWaitingEvents: Bool { self != .events && self != .tickets }
}

/// The topics in which events wait, as a lane reads and writes them.
internal struct WaitingTopics: Sendable {
    /// The retry topics, in the order of the tiers.
    let retry: [OutputTopic]
    /// The parking topics.
    let parked: [WaitingPlace: OutputTopic]
    /// What the names of input topics stand for; all others are events topics.
    let roads: [String: Road]
    /// How many topics hold events that were put off.
    var count: Int { retry.count + parked.count }

    /// Nil when the committer does not know one of the topics.
    init?(
        retryBase: String, parkedBase: String, tickets: String, _ find: (String) -> OutputTopic?
    ) {
        var roads: [String: Road] = [tickets: .tickets]
        var retry: [OutputTopic] = []
        for tier in RetryTier.allCases {
            let name = tier.topic(of: retryBase)
            guard let topic = find(name) else { return nil }
            retry.append(topic)
            roads[name] = .retry(tier)
        }
        var parked: [WaitingPlace: OutputTopic] = [:]
        for lot in ParkingLot.all {
            let name = lot.topic(of: parkedBase)
            guard let topic = find(name) else { return nil }
            parked[.lot(lot)] = topic
            roads[name] = .parked(lot)
        }
        let held = WaitingPlace.heldTopic(of: parkedBase)
        guard let topic = find(held) else { return nil }
        parked[.held] = topic
        roads[held] = .held
        self.retry = retry
        self.parked = parked
        self.roads = roads
    }
}
