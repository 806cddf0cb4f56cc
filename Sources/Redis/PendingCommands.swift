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

/// Owns its memory: a command is moved in and out, and its handler retained once.
internal struct PendingCommands: ~Copyable {
    private var slots: UnsafeMutablePointer<PendingCommand>
    /// A power of two, so that places wrap by a mask.
    private var capacity = 64
    private var head = 0
    private(set) var count = 0

    init() { slots = .allocate(capacity: capacity) }

    deinit {
        for index in 0..<count { (slots + place(index)).deinitialize(count: 1) }
        slots.deallocate()
    }

    var first: PendingCommand? { count > 0 ? slots[head] : nil }

    mutating func append(_ command: consuming PendingCommand) {
        if count == capacity { grow() }
        (slots + place(count)).initialize(to: command)
        count += 1
    }

    mutating func popFirst() -> PendingCommand? {
        guard count > 0 else { return nil }
        let command = (slots + head).move()
        head = (head + 1) & (capacity - 1)
        count -= 1
        return command
    }

    private func place(_ index: Int) -> Int { (head + index) & (capacity - 1) }

    private mutating func grow() {
        let larger = UnsafeMutablePointer<PendingCommand>.allocate(capacity: capacity * 2)
        for index in 0..<count {
            (larger + index).moveInitialize(from: slots + place(index), count: 1)
        }
        slots.deallocate()
        slots = larger
        capacity *= 2
        head = 0
    }
}
