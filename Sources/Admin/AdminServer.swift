// Metrics and health over HTTP/1.1, for Prometheus and for whoever supervises the process. The
// control plane: libmicrohttpd serves on one thread of its own, apart from the lanes, and reads
// only what is safe to read on any thread.

public import Base
internal import CMicroHTTPD
internal import CMicroHTTPDShims
internal import Glibc
internal import Synchronization
public import Telemetry

/// A running admin server.
public final class AdminServer: Sendable {
    /// What clients may use up.
    public enum Limits {
        /// Connections at a time; more are refused.
        public static let connections: UInt32 = 32
        /// Seconds without activity after which a connection is closed.
        public static let idleSeconds: UInt32 = 10
        /// Bytes of memory a connection may use for its request and answer head.
        public static let connectionMemory = 16 << 10
        /// Connections waiting to be accepted.
        public static let backlog: Int32 = 32
    }

    /// What the server tells. The closures run on the server's thread.
    public struct Routes: Sendable {
        /// The metrics behind `/metrics`.
        public var metrics: MetricsRegistry
        /// Whether the process itself works, behind `/healthz`: its loops turn. Must not depend on
        /// other systems, or their fault would get this process restarted.
        public var health: @Sendable () -> HealthReport
        /// Whether the process can do its work now, behind `/readyz`.
        public var readiness: @Sendable () -> HealthReport
        /// Writes the JSON object behind `/status.json`, which the page at `/` shows.
        public var status: @Sendable (ByteWriter) -> Void

        /// All routes; a server that has no status to tell says so with an empty object.
        public init(
            metrics: MetricsRegistry, health: @escaping @Sendable () -> HealthReport,
            readiness: @escaping @Sendable () -> HealthReport,
            status: @escaping @Sendable (ByteWriter) -> Void = { $0.append("{}" as StaticString) }
        ) {
            self.metrics = metrics
            self.health = health
            self.readiness = readiness
            self.status = status
        }
    }

    /// libmicrohttpd's daemon and the context that its callback gets, until `stop()`.
    private struct Running: @unchecked Sendable {
        // Unchecked because of the pointer: it is used by `stop()` only, under the mutex.
        var daemon: OpaquePointer
        var context: AdminRequestHandler
    }

    /// The port that is served, also when 0 was asked for.
    public let port: UInt16
    private let running: Mutex<Running?>

    private init(port: UInt16, _ running: Running) {
        self.port = port
        self.running = Mutex(running)
    }

    deinit { stop() }

    /// Binds the address and starts to serve.
    public static func start(
        host: String, port: UInt16, routes: Routes
    ) throws(AdminError) -> AdminServer {
        let (fd, boundPort) = try AdminSocket.listen(host: host, port: port)
        let handler = AdminRequestHandler(routes)
        // Unretained: `Running` keeps the handler until the daemon's thread has ended.
        let context = Unmanaged.passUnretained(handler).toOpaque()
        let daemon = cmicrohttpd_start(
            fd, Limits.connections, Limits.idleSeconds, Limits.connectionMemory,
            { context, connection, url, method, _, _, uploadSize, state in
                guard let context, let connection, let url, let method, let uploadSize, let state
                else { return .NO }
                let handler = Unmanaged<AdminRequestHandler>.fromOpaque(context)
                    .takeUnretainedValue()
                return handler.handle(
                    connection, path: String(cString: url), method: String(cString: method),
                    uploadSize: uploadSize, state: state)
            }, context)
        guard let daemon else {
            close(fd)
            throw AdminError.notStarted
        }
        return AdminServer(port: boundPort, Running(daemon: daemon, context: handler))
    }

    /// Stops serving and waits until the server's thread has ended. Safe to call again.
    public func stop() {
        guard let stopped = running.withLock({ $0.take() }) else { return }
        MHD_stop_daemon(stopped.daemon)
        withExtendedLifetime(stopped.context) {}
    }
}
