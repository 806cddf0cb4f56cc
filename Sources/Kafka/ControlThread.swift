// The threads behind the group and the committer: both wait inside librdkafka, so they are plain
// threads and no loops.

internal import Base
internal import CLinux
internal import CRDKafka
internal import EventLoop
internal import Glibc

/// A thread that runs one body; signals stay with the main thread.
enum ControlThread {
    private final class Body {
        let name: String
        let run: () -> Void
        let ended: Latch
        init(name: String, ended: Latch, run: @escaping () -> Void) {
            self.name = name
            self.ended = ended
            self.run = run
        }
    }

    /// Starts the thread; the latch opens when the body has returned.
    static func start(
        name: String, _ run: sending @escaping () -> Void
    ) throws(KafkaError) -> Latch {
        let ended = Latch()
        let body = Unmanaged.passRetained(Body(name: name, ended: ended, run: run))
        var attributes = pthread_attr_t()
        pthread_attr_init(&attributes)
        pthread_attr_setdetachstate(&attributes, Int32(PTHREAD_CREATE_DETACHED))
        defer { pthread_attr_destroy(&attributes) }
        // The mask is inherited: blocked around the call, it is never open in the new thread.
        var all = sigset_t()
        var before = sigset_t()
        sigfillset(&all)
        pthread_sigmask(SIG_BLOCK, &all, &before)
        defer { pthread_sigmask(SIG_SETMASK, &before, nil) }
        var thread = pthread_t()
        let failure = pthread_create(
            &thread, &attributes,
            { context in
                guard let context else { return nil }
                let body = Unmanaged<Body>.fromOpaque(context).takeRetainedValue()
                // The kernel keeps 15 bytes of a thread's name.
                bugle_set_thread_name(String(body.name.prefix(15)))
                body.run()
                body.ended.open()
                return nil
            }, body.toOpaque())
        guard failure == 0 else {
            body.release()
            throw KafkaError(RD_KAFKA_RESP_ERR__CRIT_SYS_RESOURCE, "no thread for \(name)")
        }
        return ended
    }
}

/// Opens when a thread has ended; may be waited for by anyone, more than once.
final class Latch: Sendable {
    private let semaphore = Semaphore()

    func open() { semaphore.signal() }

    /// Waits until the gate is open; false when the deadline passed first.
    func wait(until deadline: MonotonicTime) -> Bool {
        guard semaphore.wait(upTo: deadline - SystemTime.shared.monotonic) else { return false }
        semaphore.signal()  // for the next who asks
        return true
    }
}
