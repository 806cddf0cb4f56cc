// A thread that runs one loop.

public import Base
internal import CLinux
internal import Glibc
internal import Synchronization

/// A named thread with an event loop on it.
public final class LoopThread: Sendable {
    /// The loop's face.
    public let handle: LoopHandle
    private let thread: pthread_t

    private init(handle: LoopHandle, thread: pthread_t) {
        self.handle = handle
        self.thread = thread
    }

    /// Starts a thread, makes its loop, runs `setUp` on it and then the loop until it is stopped.
    /// Returns when `setUp` is done.
    public static func start(
        name: String, time: any TimeSource = SystemTime.shared,
        _ setUp: @escaping @Sendable (EventLoop) -> Void
    ) throws(SystemError) -> LoopThread {
        let start = Start(name: name, time: time, setUp: setUp)
        var thread = pthread_t()
        let opaque = Unmanaged.passRetained(start).toOpaque()
        let code = pthread_create(
            &thread, nil,
            { opaque in
                guard let opaque else { return nil }
                Unmanaged<Start>.fromOpaque(opaque).takeRetainedValue().run()
                return nil
            }, opaque)
        guard code == 0 else {
            Unmanaged<Start>.fromOpaque(opaque).release()
            throw SystemError("pthread_create", errno: code)
        }
        switch start.waitForLoop() {
        case .success(let handle): return LoopThread(handle: handle, thread: thread)
        case .failure(let error):
            pthread_join(thread, nil)
            throw error
        }
    }

    /// Waits until the thread has ended; stop its loop first. Call once, from another thread.
    public func join() { pthread_join(thread, nil) }
}

/// What the starter and the new thread share until the loop runs.
private final class Start: Sendable {
    private let name: String
    private let time: any TimeSource
    private let setUp: @Sendable (EventLoop) -> Void
    private let outcome = Mutex<Result<LoopHandle, SystemError>?>(nil)
    private let isReady = Semaphore()

    init(name: String, time: any TimeSource, setUp: @escaping @Sendable (EventLoop) -> Void) {
        self.name = name
        self.time = time
        self.setUp = setUp
    }

    func run() {
        // The kernel keeps 15 bytes of a thread's name.
        bugle_set_thread_name(String(name.prefix(15)))
        do throws(SystemError) {
            let loop = try EventLoop(name: name, time: time)
            setUp(loop)
            outcome.withLock { $0 = .success(loop.handle) }
            isReady.signal()
            loop.run()
        } catch {
            outcome.withLock { $0 = .failure(error) }
            isReady.signal()
        }
    }

    func waitForLoop() -> Result<LoopHandle, SystemError> {
        isReady.wait()
        return outcome.withLock { $0 ?? .failure(SystemError("pthread_create", errno: EAGAIN)) }
    }
}

/// A POSIX semaphore: blocks a thread until another signals.
public final class Semaphore: Sendable {
    // `sem_t` must not move, so it lives on the heap until deinit. The C functions are
    // thread-safe by definition.
    private nonisolated(unsafe) let semaphore: UnsafeMutablePointer<sem_t>

    /// A semaphore that nobody has signalled.
    public init() {
        semaphore = .allocate(capacity: 1)
        sem_init(semaphore, 0, 0)
    }

    deinit {
        sem_destroy(semaphore)
        semaphore.deallocate()
    }

    /// Lets one waiter go on.
    public func signal() { sem_post(semaphore) }

    /// Blocks until there is a signal to take.
    public func wait() {
        while sem_wait(semaphore) != 0 && errno == EINTR {}
    }

    /// Blocks until there is a signal to take or the span has passed; false when it has.
    public func wait(upTo span: TimeSpan) -> Bool {
        var deadline = timespec()
        clock_gettime(CLOCK_REALTIME, &deadline)
        let nanos = Int64(deadline.tv_nsec) + max(span.nanos, 0)
        deadline.tv_sec += Int(nanos / 1_000_000_000)
        deadline.tv_nsec = Int(nanos % 1_000_000_000)
        while sem_timedwait(semaphore, &deadline) != 0 {
            if errno != EINTR { return false }
        }
        return true
    }
}
