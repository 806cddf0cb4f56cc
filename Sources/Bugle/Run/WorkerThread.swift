internal import CLinux
internal import EventLoop
internal import Glibc

/// A named thread that runs one closure to its end.
internal final class WorkerThread: Sendable {
    private let thread: pthread_t

    /// Starts the thread.
    init(name: String, _ body: @escaping @Sendable () -> Void) throws(SystemError) {
        var thread = pthread_t()
        let opaque = Unmanaged.passRetained(Body(name: name, run: body)).toOpaque()
        let code = pthread_create(
            &thread, nil,
            { opaque in
                guard let opaque else { return nil }
                let body = Unmanaged<Body>.fromOpaque(opaque).takeRetainedValue()
                // The kernel keeps 15 bytes of a thread's name.
                bugle_set_thread_name(String(body.name.prefix(15)))
                body.run()
                return nil
            }, opaque)
        guard code == 0 else {
            Unmanaged<Body>.fromOpaque(opaque).release()
            throw SystemError("pthread_create", errno: code)
        }
        self.thread = thread
    }

    /// Waits until the closure has returned; once, from another thread.
    func join() { pthread_join(thread, nil) }

    private final class Body: Sendable {
        let name: String
        let run: @Sendable () -> Void

        init(name: String, run: @escaping @Sendable () -> Void) {
            self.name = name
            self.run = run
        }
    }
}
