internal import Base
internal import Glibc

/// The signals of the process. A command that runs until it is told to end blocks them before any
/// thread exists, so that every thread, those of C libraries too, inherits that, and the main
/// thread takes them when it waits.
internal enum ProcessSignals {
    /// A peer that closes its socket is an error of a write, not the end of the process.
    static func ignorePipes() { signal(SIGPIPE, SIG_IGN) }

    /// Keeps the signals for `wait`. Call on the main thread before any other exists. A command
    /// that does not wait leaves them alone, and Ctrl-C ends it.
    static func block() {
        var set = awaited
        pthread_sigmask(SIG_BLOCK, &set, nil)
    }

    /// Waits for SIGTERM, SIGINT or SIGHUP; nil when the span has passed.
    static func wait(upTo span: TimeSpan) -> Int32? {
        var set = awaited
        let nanos = max(span.nanos, 0)
        var limit = timespec(
            tv_sec: Int(nanos / 1_000_000_000), tv_nsec: Int(nanos % 1_000_000_000))
        let number = sigtimedwait(&set, nil, &limit)
        return number > 0 ? number : nil
    }

    /// Waits for SIGTERM, SIGINT or SIGHUP.
    static func wait() -> Int32 {
        var set = awaited
        while true {
            let number = sigwaitinfo(&set, nil)
            if number > 0 { return number }
        }
    }

    /// Waits for a signal that ends the process: SIGTERM or SIGINT.
    static func waitForEnd() -> Int32 {
        while true {
            let number = wait()
            if number != SIGHUP { return number }
        }
    }

    /// The name of a signal that is waited for.
    static func name(_ number: Int32) -> String {
        switch number {
        case SIGTERM: "SIGTERM"
        case SIGINT: "SIGINT"
        case SIGHUP: "SIGHUP"
        default: "signal \(number)"
        }
    }

    private static var awaited: sigset_t {
        var set = sigset_t()
        sigemptyset(&set)
        for number in [SIGTERM, SIGINT, SIGHUP] { sigaddset(&set, number) }
        return set
    }
}
