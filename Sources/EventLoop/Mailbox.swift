// The bounded queue by which messages cross into a loop: many senders, one receiver, batches,
// one wake-up for as many messages as arrive before the loop turns.

internal import Base
internal import Synchronization

/// Carries messages from any thread to the loop it is attached to.
public final class Mailbox<Message: Sendable>: Sendable {
    private struct State: Sendable {
        var messages: [Message] = []
        var loop: LoopHandle?
        var receiver: LoopConfined<([Message]) -> Void>?
        var isNotified = false
    }

    private let capacity: Int
    private let state = Mutex(State())

    /// A mailbox that holds at most `capacity` messages.
    public init(capacity: Int) {
        precondition(capacity > 0)
        self.capacity = capacity
    }

    /// Posts a message; false when the mailbox is full and the message was not taken.
    @discardableResult
    public func post(_ message: Message) -> Bool {
        let (taken, loop) = state.withLock { state -> (Bool, LoopHandle?) in
            guard state.messages.count < capacity else { return (false, nil) }
            state.messages.append(message)
            guard !state.isNotified, let loop = state.loop else { return (true, nil) }
            state.isNotified = true
            return (true, loop)
        }
        loop?.submit { self.deliver() }
        return taken
    }

    /// How many messages wait.
    public var count: Int { state.withLock { $0.messages.count } }

    /// Delivers batches to `receive` on the loop's thread from now on; what already waits is
    /// delivered in this or the next turn. Call once, on the loop's thread.
    public func attach(to loop: EventLoop, _ receive: @escaping ([Message]) -> Void) {
        let receiver = LoopConfined(receive)
        let handle = loop.handle
        state.withLock { state in
            precondition(state.receiver == nil, "a mailbox has one receiver")
            state.receiver = receiver
            state.loop = handle
            state.isNotified = true
        }
        handle.submit { self.deliver() }
    }

    private func deliver() {
        let (batch, receiver) = state.withLock { state in
            state.isNotified = false
            defer { state.messages = [] }
            return (state.messages, state.receiver)
        }
        if !batch.isEmpty { receiver?.value(batch) }
    }
}

/// Carries a loop-confined value through `Sendable` places that only ever hand it back to that
/// loop's thread.
///
/// `@unchecked Sendable`: the value is created and used on one thread, the loop's; other threads
/// only pass it along.
internal struct LoopConfined<Value>: @unchecked Sendable {
    let value: Value
    init(_ value: Value) { self.value = value }
}
