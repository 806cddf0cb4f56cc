// Routes change while the process runs: on SIGHUP, and when the file has changed. A mistake in the
// new ones is told, and the old ones stay; a file that is still being written is left alone until it
// rests, since the beginning of one may be a whole configuration too.

internal import Config
internal import Routes
internal import Telemetry

/// Loads routes anew for a running service. Used by one thread.
internal final class RouteReload {
    private let path: String
    private let log: Log
    private let replace: (RouteTable, _ configurationHash: String) -> Void
    /// The file as it was when it was read last, and when it was looked at last.
    private var seen: FileState?
    private var looked: FileState?
    private var hash: String
    /// The apps that events are sent for until the process ends.
    private let apps: [String]

    /// Watches the file that `configuration` was loaded from.
    init(
        path: String, _ configuration: Configuration, log: Log,
        replace: @escaping (RouteTable, _ configurationHash: String) -> Void
    ) {
        self.path = path
        self.log = log
        self.replace = replace
        hash = configuration.shortHash
        apps = configuration.apps.map(\.name)
        seen = FileState(path)
        looked = seen
    }

    /// Reloads if the file is another one, or was written, and is as it was at the last look; to be
    /// called about twice a second.
    func reloadIfChanged() {
        let state = FileState(path)
        defer { looked = state }
        // A file that is being replaced may be absent for a moment.
        guard let state, state != seen, state == looked else { return }
        reload(because: "the file changed")
    }

    /// Reloads in any case.
    func reload(because cause: String) {
        seen = FileState(path)
        do throws(Failure) {
            let configuration = try ConfigurationFile.load(path: path)
            let routes = try ConfigurationFile.routes(of: configuration)
            // No route is for an app that is not configured, and its events still come.
            let gone = apps.filter { configuration.app(named: $0) == nil }
            guard gone.isEmpty else {
                for app in gone {
                    log.error(
                        "the old routes stay: apps.\(app) is gone; that needs a restart",
                        ["cause": LogValue(cause)])
                }
                return
            }
            replace(routes, configuration.shortHash)
            log.info(
                configuration.shortHash == hash
                    ? "routes reloaded; the file is the same"
                    : "routes reloaded; of the rest of the file only credentials are, all else needs "
                        + "a restart",
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
