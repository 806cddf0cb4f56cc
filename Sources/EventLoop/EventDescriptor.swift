internal import CLinux
internal import Glibc

/// An eventfd: a descriptor that other threads, C libraries among them, write to in order to wake
/// a loop.
public enum EventDescriptor {
    /// A new non-blocking descriptor; the caller closes it.
    public static func open() throws(SystemError) -> Int32 {
        try checked("eventfd") { eventfd(0, Int32(EFD_CLOEXEC | EFD_NONBLOCK)) }
    }

    /// Reads the descriptor empty, so that the next write wakes again.
    public static func drain(_ fd: Int32) {
        var value: UInt64 = 0
        read(fd, &value, 8)
    }
}
