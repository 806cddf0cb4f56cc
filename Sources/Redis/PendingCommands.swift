// The commands that wait for their reply, in the order they were sent: a ring.

internal import Base

internal struct PendingCommand {
    var handler: any RedisReplyHandler
    var tag: UInt64
    var deadline: MonotonicTime
    /// Its bytes in the output; counted only where they are kept until the reply.
    var length: Int32 = 0
    /// Redirections it has followed.
    var hops: UInt8 = 0
}

internal struct PendingCommands {
    private var slots: [PendingCommand?]
    private var head = 0
    private(set) var count = 0

    init() { slots = Array(repeating: nil, count: 64) }

    var first: PendingCommand? { slots[head] }

    mutating func append(_ command: PendingCommand) {
        if count == slots.count { grow() }
        slots[(head + count) & (slots.count - 1)] = command
        count += 1
    }

    mutating func popFirst() -> PendingCommand? {
        guard let command = slots[head] else { return nil }
        slots[head] = nil
        head = (head + 1) & (slots.count - 1)
        count -= 1
        return command
    }

    /// The size stays a power of two, so that places wrap by a mask.
    private mutating func grow() {
        var larger: [PendingCommand?] = []
        larger.reserveCapacity(slots.count * 2)
        for index in 0..<count { larger.append(slots[(head + index) & (slots.count - 1)]) }
        larger.append(contentsOf: repeatElement(nil, count: slots.count * 2 - count))
        slots = larger
        head = 0
    }
}
