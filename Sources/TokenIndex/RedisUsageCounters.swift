// The counts of all replicas, in Redis.

internal import Base
public import EventLoop
internal import Redis

extension RedisTokenIndex {
    /// The counts beside this index, with a connection of their own that is opened when the first
    /// thing is counted.
    public func usage(on loop: EventLoop) -> any UsageCounters {
        RedisUsageCounters(configuration, layout: layout, on: loop)
    }
}

/// Counts in Redis. What is sent in one turn leaves in one write.
internal final class RedisUsageCounters: UsageCounters {
    private let client: RedisClient
    private let layout: RedisLayout
    private var isStarted = false

    init(_ configuration: RedisConfiguration, layout: RedisLayout, on loop: EventLoop) {
        self.layout = layout
        client = RedisClient(configuration, on: loop)
    }

    func takePlace(
        of id: UUIDBytes, in caps: [UsageCap], app: String, userID: String, at now: UnixMillis,
        _ done: @escaping (Result<UsageCap?, UsageFault>) -> Void
    ) {
        var arguments = [String(now.value), id.text]
        for cap in caps { arguments += [String(cap.cap.count), String(cap.cap.span.millis)] }
        let keys = caps.map { layout.places($0, of: userID, app: app) }
        ask(UsageScripts.takePlace, keys, arguments) { answer in
            done(answer.map { $0 > 0 ? caps[min(Int($0), caps.count) - 1] : nil })
        }
    }

    func returnPlace(of id: UUIDBytes, in caps: [UsageCap], app: String, userID: String) {
        let keys = caps.map { layout.places($0, of: userID, app: app) }
        ask(UsageScripts.giveBack, keys, [id.text]) { _ in }
    }

    func takeSlot(
        _ request: SlotRequest, of addressID: String, _ cap: Cap, at now: UnixMillis,
        _ done: @escaping (Result<SlotAnswer, UsageFault>) -> Void
    ) {
        let keys = [layout.slots(of: addressID), layout.newestMessage(of: addressID)]
        let arguments = [
            String(now.value), String(cap.count), String(cap.span.millis), request.id.text,
            String(request.time.value), String(request.offset), request.hasWaited ? "1" : "0",
            String(request.patience.value),
        ]
        ask(UsageScripts.takeSlot, keys, arguments) { answer in
            done(
                answer.map { answer in
                    switch answer {
                    case 0: .taken
                    case -1: .replaced
                    default: .waits(until: UnixMillis(answer))
                    }
                })
        }
    }

    func returnSlot(of id: UUIDBytes, of addressID: String) {
        ask(UsageScripts.giveBack, [layout.slots(of: addressID)], [id.text]) { _ in }
    }

    func count(
        for source: String, in quotas: [UsageQuota], at now: UnixMillis,
        _ done: @escaping (Result<UsageQuota?, UsageFault>) -> Void
    ) {
        let keys = quotas.map { layout.window($0, of: source, at: now) }
        // Kept for longer than the window is: clocks differ.
        let arguments = quotas.flatMap {
            [String($0.cap.count), String(2 * $0.cap.span.millis)]
        }
        ask(UsageScripts.count, keys, arguments) { answer in
            done(answer.map { $0 > 0 ? quotas[min(Int($0), quotas.count) - 1] : nil })
        }
    }

    var isShared: Bool { true }

    func lease(
        _ wanted: Int, of rate: SharedRate, at now: UnixMillis,
        _ done: @escaping (Result<Int, UsageFault>) -> Void
    ) {
        let arguments = [
            String(rate.perSecond), String(rate.burst), String(wanted), String(rate.ramp.millis),
        ]
        ask(UsageScripts.lease, [layout.rate(rate.name)], arguments) { answer in
            done(answer.map { min(max(Int($0), 0), wanted) })
        }
    }

    func stop() { client.close() }

    private func ask(
        _ script: RedisScript, _ keys: [String], _ arguments: [String],
        _ done: @escaping (Result<Int64, UsageFault>) -> Void
    ) {
        if !isStarted {
            isStarted = true
            client.start()
        }
        RedisQuestion.ask(client, script, keys, arguments.map { Array($0.utf8) }) { reply in
            switch reply {
            case .success(let reply):
                guard let number = reply.integer else {
                    return done(.failure(.refused("an answer that is no number")))
                }
                done(.success(number))
            case .failure(let error): done(.failure(Self.fault(error)))
            }
        }
    }

    private static func fault(_ error: RedisError) -> UsageFault {
        guard case .refused(let refusal) = error else { return .away("\(error)") }
        switch refusal.kind {
        case .loading, .readOnly, .moved, .ask, .tryAgain, .clusterDown, .unavailable, .noScript:
            return .away("\(refusal)")
        case .outOfMemory, .wrongType, .authentication, .other: return .refused("\(refusal)")
        }
    }
}
