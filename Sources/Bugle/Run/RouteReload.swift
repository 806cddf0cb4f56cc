// Routes change while the process runs: on SIGHUP, and when the file has changed. A mistake in the
// new ones is told, and the old ones stay.

internal import Config
internal import Glibc
internal import Routes
internal import Telemetry

/// Loads routes anew for a running service. Used by one thread.
internal final class RouteReload {
    private let path: String
    private let log: Log
    private let replace: (RouteTable, _ configurationHash: String) -> Void
    private var seen: FileState?
    private var hash: String

    /// Watches the file that `configuration` was loaded from.
    init(
        path: String, _ configuration: Configuration, log: Log,
        replace: @escaping (RouteTable, _ configurationHash: String) -> Void
    ) {
        self.path = path
        self.log = log
        self.replace = replace
        hash = configuration.shortHash
        seen = FileState(path)
    }

    /// Reloads if the file is another one, or was written, since the last look.
    func reloadIfChanged() {
        let state = FileState(path)
        // A file that is being replaced may be absent for a moment.
        guard let state, state != seen else { return }
        reload(because: "the file changed")
    }

    /// Reloads in any case.
    func reload(because cause: String) {
        seen = FileState(path)
        do throws(Failure) {
            let configuration = try ConfigurationFile.load(path: path)
            let routes = try ConfigurationFile.routes(of: configuration)
            replace(routes, configuration.shortHash)
            log.info(
                configuration.shortHash == hash
                    ? "routes reloaded; the file is the same"
                    : "routes reloaded; everything else in the file needs a restart",
                [
                    "cause": LogValue(cause), "routes": LogValue(routes.routes.count),
                    "config": LogValue(configuration.shortHash),
                ])
            hash = configuration.shortHash
            for lint in routes.lints(configuration) { log.warning(lint.description) }
        } catch {
            for line in error.lines {
                log.error("the old routes stay: \(line)", ["cause": LogValue(cause)])
            }
        }
    }
}

/// What tells one state of a file from another. A mounted file is often a link that is moved to
/// another folder: then its inode changes.
private struct FileState: Equatable {
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
