internal import Glibc

/// What tells one state of a file from another. A mounted file is often a link that is moved to
/// another folder: then its inode changes.
internal struct FileState: Equatable {
    private let device: UInt64
    private let inode: UInt64
    private let size: Int64
    private let seconds: Int64
    private let nanos: Int64

    init?(_ path: String) {
        var status = stat()
        guard stat(path, &status) == 0 else { return nil }
        device = UInt64(status.st_dev)
        inode = UInt64(status.st_ino)
        size = Int64(status.st_size)
        seconds = Int64(status.st_mtim.tv_sec)
        nanos = Int64(status.st_mtim.tv_nsec)
    }
}
