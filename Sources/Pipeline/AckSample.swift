// How many accepted pushes devices acknowledge: a sample, since a process cannot remember every push
// of a day. Which pushes are in it is a matter of their message_id alone, so that every
// acknowledgement of one of them is recognised and all others are passed over unread.

public import Base
public import JSON
internal import Synchronization
public import Telemetry

/// The sampled pushes of a process, and what devices said of them. Safe on any thread.
public final class AckSample: Sendable {
    /// What a device may say.
    public enum Kind: String, Sendable, CaseIterable {
        case delivered, displayed, opened, action
    }

    private struct Sent: Sendable {
        var gateway: Gateway
        var at: UnixMillis
        var seen: UInt8 = 0
    }

    private struct State: Sendable {
        var sent: [UUIDBytes: Sent] = [:]
        /// In the order in which they were sent.
        var order: [UUIDBytes] = []
        var first = 0
    }

    private let state = Mutex(State())
    private let sampled: [Gateway: Counter]
    private let acknowledged: [Gateway: [Kind: Counter]]

    /// One push in so many is in the sample.
    public static let oneIn: UInt64 = 32
    /// Pushes that are remembered at most; beyond it the oldest are forgotten. Some 6 MiB.
    public static let pushesMax = 65_536

    /// A sample that counts into a registry.
    public init(_ registry: MetricsRegistry) {
        func counter(_ name: String, _ help: String, _ labels: [(String, String)]) -> Counter {
            registry.counter(name, help: help, labels: labels)
        }
        sampled = Dictionary(
            uniqueKeysWithValues: Gateway.allCases.map {
                (
                    $0,
                    counter(
                        "bugle_ack_sampled_pushes_total",
                        "Accepted pushes whose acknowledgements are counted, one in 32.",
                        [("gateway", $0.rawValue)])
                )
            })
        acknowledged = Dictionary(
            uniqueKeysWithValues: Gateway.allCases.map { gateway in
                (
                    gateway,
                    Dictionary(
                        uniqueKeysWithValues: Kind.allCases.map {
                            (
                                $0,
                                counter(
                                    "bugle_ack_sampled_acknowledged_total",
                                    "Pushes of that sample that a device acknowledged, each kind once.",
                                    [("gateway", gateway.rawValue), ("type", $0.rawValue)])
                            )
                        })
                )
            })
    }

    /// Reads a record of `push.acks`, schema `topics/push.acks.schema.json`; nil for what is none.
    public static func read(
        _ value: UnsafeRawBufferPointer, _ parser: JSONParser
    ) -> (id: UUIDBytes, kind: Kind)? {
        guard let root = try? parser.parse(value),
            let id = root["message_id"]?.string.flatMap({ UUIDBytes($0) }),
            let kind = root["type"]?.string.flatMap({ Kind(rawValue: $0) })
        else { return nil }
        return (id, kind)
    }

    /// Whether a message belongs to the sample. Message ids are hashes, and the last byte of one is
    /// as good as any.
    @inlinable
    public static func holds(_ id: UUIDBytes) -> Bool { id.low % oneIn == 0 }

    /// Takes an accepted push in, if it belongs to the sample.
    public func accepted(_ id: UUIDBytes, by gateway: Gateway, at time: UnixMillis) {
        guard Self.holds(id) else { return }
        let isNew = state.withLock { state in
            guard state.sent[id] == nil else { return false }
            state.sent[id] = Sent(gateway: gateway, at: time)
            state.order.append(id)
            if state.order.count - state.first > Self.pushesMax {
                state.sent[state.order[state.first]] = nil
                state.first += 1
            }
            // The front is given back in one piece once in a while.
            if state.first > Self.pushesMax {
                state.order.removeFirst(state.first)
                state.first = 0
            }
            return true
        }
        if isNew { sampled[gateway]?.add(1) }
    }

    /// Takes an acknowledgement in; one that comes twice counts once.
    public func acknowledged(_ id: UUIDBytes, _ kind: Kind) {
        guard Self.holds(id) else { return }
        let bit = UInt8(1) << UInt8(Kind.allCases.firstIndex(of: kind) ?? 0)
        let gateway = state.withLock { state -> Gateway? in
            guard var sent = state.sent[id], sent.seen & bit == 0 else { return nil }
            sent.seen |= bit
            state.sent[id] = sent
            return sent.gateway
        }
        if let gateway { acknowledged[gateway]?[kind]?.add(1) }
    }

    /// Pushes that are remembered now.
    public var count: Int { state.withLock { $0.sent.count } }
}
