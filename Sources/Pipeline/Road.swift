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

/// Where a partition's records come from.
internal enum Road: Hashable, Sendable {
    /// From the publishers.
    case events
    /// From a retry topic: due when its tier is over.
    case retry(RetryTier)
    /// From a parking topic: due when its bulkhead takes requests again.
    case parked(ParkingLot)
    /// Not an event but a ticket of Expo's: due when its receipt may be asked for.
    case tickets
}

/// The topics in which events wait, as a lane reads and writes them.
internal struct WaitingTopics: Sendable {
    /// The retry topics, in the order of the tiers.
    let retry: [OutputTopic]
    /// The parking topics.
    let parked: [ParkingLot: OutputTopic]
    /// What the names of input topics stand for; all others are events topics.
    let roads: [String: Road]

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
        var parked: [ParkingLot: OutputTopic] = [:]
        for lot in ParkingLot.all {
            let name = lot.topic(of: parkedBase)
            guard let topic = find(name) else { return nil }
            parked[lot] = topic
            roads[name] = .parked(lot)
        }
        self.retry = retry
        self.parked = parked
        self.roads = roads
    }
}
