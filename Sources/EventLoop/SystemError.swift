// The one chokepoint for system calls that can fail: the call's name and errno travel together.

import Glibc

/// A system call that failed for a reason the caller has to handle.
public struct SystemError: Error, Equatable, CustomStringConvertible {
    /// The call's name, e.g. `connect`.
    public let call: String
    /// The error number the call left.
    public let errno: Int32

    /// An error of a named call.
    public init(_ call: StaticString, errno: Int32) {
        self.call = call.description
        self.errno = errno
    }

    /// For example `connect: Connection refused`.
    public var description: String { "\(call): \(String(cString: strerror(errno)))" }
}

/// Runs a call until it is not interrupted, and turns -1 into an error.
@discardableResult
internal func checked(_ name: StaticString, _ call: () -> Int32) throws(SystemError) -> Int32 {
    while true {
        let result = call()
        if result >= 0 { return result }
        let code = errno
        if code == EINTR { continue }
        // A descriptor that is not ours any more is a fault of this program: going on could write
        // one connection's bytes into another's socket.
        precondition(code != EBADF, "\(name): bad file descriptor")
        throw SystemError(name, errno: code)
    }
}
