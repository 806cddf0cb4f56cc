// The levers of an operator: what is paused now, and which events are to be skipped. Lanes get a
// new value when something changes and ask it before an event is looked up, before a target is
// sent and before a request is written. Nothing is paused nearly always: then asking is one read.

public import Base
internal import Gateways
internal import TokenIndex

/// What a lever is attached to.
public enum LeverKind: String, Sendable, CaseIterable {
    /// Events of a type, `chat.message`, or of types that begin alike, `chat.*`.
    case type
    /// Events of one publisher.
    case source
    /// Everything for a gateway, `apns`, or for one of its environments, `apns/sandbox`.
    case gateway
    /// Everything of an app.
    case app
}

/// One thing that can be paused.
public struct Lever: Hashable, Sendable, CustomStringConvertible {
    /// What it is attached to.
    public let kind: LeverKind
    /// The type, source, gateway or app, 1 to 256 bytes.
    public let value: String

    /// Nil when the value is empty, too long, or no gateway although it must be one.
    public init?(_ kind: LeverKind, _ value: String) {
        guard (1...256).contains(value.utf8.count) else { return nil }
        if kind == .gateway, Self.bulkheads(of: value) == nil { return nil }
        self.kind = kind
        self.value = value
    }

    /// As operators write it: `type chat.*`.
    public var description: String { "\(kind.rawValue) \(value)" }

    /// The places that a gateway's name stands for.
    fileprivate static func bulkheads(of name: String) -> [ParkingLot]? {
        let parts = name.split(separator: "/", omittingEmptySubsequences: false)
        guard let gateway = Gateway(rawValue: String(parts[0])), parts.count <= 2 else {
            return nil
        }
        let lots = ParkingLot.all.filter {
            $0.gateway == gateway
                && (parts.count == 1 || $0.environment.rawValue == String(parts[1]))
        }
        return lots.isEmpty ? nil : lots
    }
}

/// An order to end events that are older than a moment.
public struct SkipOrder: Hashable, Sendable {
    /// Which events; nil for all.
    public var lever: Lever?
    /// Events that were due before are ended.
    public var before: UnixMillis

    /// An order for the events of a lever, or for all.
    public init(_ lever: Lever?, before: UnixMillis) {
        self.lever = lever
        self.before = before
    }
}

/// What an operator has asked for, as it is now. A value: lanes share it without a lock.
public struct Levers: Sendable, Equatable {
    /// What is paused.
    public let paused: Set<Lever>
    /// What is skipped.
    public let skips: [SkipOrder]
    /// When something was resumed last. What was set aside earlier is looked at once more, behind
    /// what is still paused too.
    public let loosenedAt: UnixMillis
    /// Whether nothing is paused or skipped.
    internal let isIdle: Bool

    private let types: NamePatterns
    private let sources: Set<String>
    private let apps: Set<String>
    private let lots: Set<ParkingLot>

    /// Nothing is paused.
    public static let none = Levers(paused: [], skips: [], loosenedAt: UnixMillis(0))

    /// The state of all levers.
    public init(paused: Set<Lever>, skips: [SkipOrder], loosenedAt: UnixMillis) {
        self.paused = paused
        self.skips = skips
        self.loosenedAt = loosenedAt
        isIdle = paused.isEmpty && skips.isEmpty
        func values(_ kind: LeverKind) -> [String] {
            paused.filter { $0.kind == kind }.map(\.value)
        }
        types = NamePatterns(values(.type))
        sources = Set(values(.source))
        apps = Set(values(.app))
        lots = Set(values(.gateway).flatMap { Lever.bulkheads(of: $0) ?? [] })
    }

    /// What holds an event back, whatever gateways it is for; nil when nothing does.
    public func hold(type: String, source: String, app: String?) -> LeverKind? {
        if types.match(type) { return .type }
        if sources.contains(source) { return .source }
        if let app, apps.contains(app) { return .app }
        return nil
    }

    /// The same for an event that was read.
    internal func hold(on envelope: EventEnvelope, app: String?) -> LeverKind? {
        hold(type: envelope.type, source: envelope.source, app: app)
    }

    /// What is paused of all that concerns an event or one of its addresses, for people.
    internal func holding(
        _ envelope: EventEnvelope, app: String, _ addresses: [DeviceAddress]
    ) -> [Lever] {
        paused.filter { lever in
            switch lever.kind {
            case .type: NamePatterns([lever.value]).match(envelope.type)
            case .source: lever.value == envelope.source
            case .app: lever.value == app
            case .gateway:
                Lever.bulkheads(of: lever.value)?.contains { lot in
                    addresses.contains {
                        $0.gateway == lot.gateway && $0.environment == lot.environment
                    }
                } ?? false
            }
        }.sorted { $0.description < $1.description }
    }

    /// Whether everything for a gateway is held back.
    internal func holds(_ gateway: Gateway, _ environment: GatewayEnvironment) -> Bool {
        !lots.isEmpty && lots.contains(ParkingLot(gateway: gateway, environment: environment))
    }

    /// Whether everything for a parking topic's gateway is held back; `base` is what the names of
    /// the parking topics begin with.
    public func holds(parkingTopic name: String, of base: String) -> Bool {
        lots.contains { $0.topic(of: base) == name }
    }

    /// Whether an event is to be ended. Its age counts from when it was due: one that was
    /// published long ago for later is not old.
    internal func skips(
        _ envelope: EventEnvelope, app: String?, publishedAt: UnixMillis
    ) -> Bool {
        guard !skips.isEmpty else { return false }
        let due = max(publishedAt, envelope.notBefore ?? publishedAt)
        return skips.contains {
            $0.covers(type: envelope.type, source: envelope.source, app: app, dueAt: due)
        }
    }
}

extension SkipOrder {
    /// Whether an event is meant.
    public func covers(type: String, source: String, app: String?, dueAt: UnixMillis) -> Bool {
        guard dueAt < before else { return false }
        guard let lever else { return true }
        switch lever.kind {
        case .type: return NamePatterns([lever.value]).match(type)
        case .source: return lever.value == source
        case .app: return lever.value == app
        case .gateway: return false
        }
    }
}

/// Names, and beginnings of names as `chat.*`.
internal struct NamePatterns: Sendable, Equatable {
    private var names: Set<String> = []
    private var beginnings: [String] = []

    init(_ patterns: [String]) {
        for pattern in patterns {
            if pattern == "*" {
                beginnings.append("")
            } else if pattern.hasSuffix(".*") {
                beginnings.append(String(pattern.dropLast()))
            } else {
                names.insert(pattern)
            }
        }
    }

    func match(_ name: String) -> Bool {
        names.contains(name) || beginnings.contains { name.hasPrefix($0) }
    }
}
