import Admin
import Base
import Glibc
import Telemetry
import Testing

/// Sends raw text to a port on the loopback and reads until the server closes.
private func exchange(_ port: UInt16, _ request: String) -> String {
    let fd = socket(AF_INET, Int32(SOCK_STREAM.rawValue), 0)
    defer { close(fd) }
    var address = sockaddr_in()
    address.sin_family = sa_family_t(AF_INET)
    address.sin_port = port.bigEndian
    address.sin_addr.s_addr = UInt32(0x7F00_0001).bigEndian
    let connected = withUnsafeBytes(of: &address) { bytes -> Int32 in
        guard let base = bytes.baseAddress else { return -1 }
        return connect(
            fd, base.assumingMemoryBound(to: sockaddr.self), socklen_t(bytes.count))
    }
    guard connected == 0 else { return "not connected" }
    var bytes = Array(request.utf8)
    guard send(fd, &bytes, bytes.count, Int32(MSG_NOSIGNAL)) == bytes.count else {
        return "not sent"
    }
    var answer: [UInt8] = []
    var chunk = [UInt8](repeating: 0, count: 4096)
    while true {
        let count = recv(fd, &chunk, chunk.count, 0)
        if count <= 0 { return String(decoding: answer, as: UTF8.self) }
        answer += chunk[..<count]
    }
}

private func get(_ port: UInt16, _ path: String, method: String = "GET") -> String {
    exchange(port, "\(method) \(path) HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
}

private func serve(
    health: HealthReport = .healthy, readiness: HealthReport = .healthy
) throws -> AdminServer {
    let metrics = MetricsRegistry()
    metrics.counter("bugle_tests_total", help: "Tests.").add(3)
    return try AdminServer.start(
        host: "127.0.0.1", port: 0,
        routes: .init(metrics: metrics, health: { health }, readiness: { readiness }))
}

@Suite struct `The admin server` {
    @Test func `metrics are served as text`() throws {
        let server = try serve()
        let answer = get(server.port, "/metrics?a=b")
        #expect(answer.hasPrefix("HTTP/1.1 200 OK\r\n"))
        #expect(answer.contains("Content-Type: text/plain; version=0.0.4; charset=utf-8\r\n"))
        #expect(
            answer.hasSuffix(
                "\r\n\r\n# HELP bugle_tests_total Tests.\n"
                    + "# TYPE bugle_tests_total counter\nbugle_tests_total 3\n"))
    }

    @Test func `health and readiness are told apart, with reasons`() throws {
        let server = try serve(
            health: HealthReport(reasons: ["lane 0 stands still for 12 s"]),
            readiness: HealthReport(reasons: ["no assignment", "redis: \"down\""]))
        #expect(get(server.port, "/healthz").hasPrefix("HTTP/1.1 503 "))
        #expect(
            get(server.port, "/healthz").hasSuffix(
                "\r\n\r\n{\"status\":\"failing\",\"reasons\":[\"lane 0 stands still for 12 s\"]}\n")
        )
        let ready = get(server.port, "/readyz")
        #expect(ready.hasPrefix("HTTP/1.1 503 ") && ready.contains("application/json"))
        #expect(
            ready.hasSuffix(
                #"{"status":"not ready","reasons":["no assignment","redis: \"down\""]}"# + "\n"))
        let well = try serve()
        #expect(get(well.port, "/healthz").hasSuffix("{\"status\":\"ok\",\"reasons\":[]}\n"))
        #expect(get(well.port, "/readyz").hasPrefix("HTTP/1.1 200 OK\r\n"))
    }

    @Test func `HEAD has no body, other methods and paths are refused`() throws {
        let server = try serve()
        let head = get(server.port, "/metrics", method: "HEAD")
        #expect(head.hasPrefix("HTTP/1.1 200 OK\r\n") && head.hasSuffix("\r\n\r\n"))
        #expect(get(server.port, "/nothing").hasPrefix("HTTP/1.1 404 "))
        #expect(get(server.port, "/metrics/../x").hasPrefix("HTTP/1.1 404 "))
        let post = exchange(
            server.port,
            "POST /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello"
        )
        #expect(post.hasPrefix("HTTP/1.1 405 ") && post.contains("Allow: GET, HEAD\r\n"))
        #expect(!exchange(server.port, "nonsense\r\n\r\n").hasPrefix("HTTP/1.1 2"))
        let long = String(repeating: "x", count: 40_000)
        #expect(!get(server.port, "/" + long).hasPrefix("HTTP/1.1 2"))
        #expect(get(server.port, "/healthz").hasPrefix("HTTP/1.1 200"))
    }

    @Test func `the status is what it is given, the page may load nothing else`() throws {
        let server = try AdminServer.start(
            host: "127.0.0.1", port: 0,
            routes: .init(
                metrics: MetricsRegistry(), health: { .healthy }, readiness: { .healthy },
                status: { $0.append("{\"v\":1}") }))
        let status = get(server.port, "/status.json")
        #expect(status.hasPrefix("HTTP/1.1 200 OK\r\n") && status.hasSuffix("{\"v\":1}"))
        #expect(status.contains("Content-Type: application/json\r\n"))
        let page = get(server.port, "/")
        #expect(page.contains("Content-Type: text/html; charset=utf-8\r\n"))
        #expect(page.contains("Content-Security-Policy: default-src 'none'; "))
        #expect(page.contains("connect-src 'self'"))
        #expect(page.contains("<!doctype html>") && page.hasSuffix("</html>"))
        let other = try serve()
        #expect(get(other.port, "/status.json").hasSuffix("\r\n\r\n{}"))
    }

    @Test func `a port in use is an error that says so`() throws {
        let server = try serve()
        #expect(
            throws: AdminError.cannotListen(host: "127.0.0.1", port: server.port, errno: EADDRINUSE)
        ) {
            _ = try AdminServer.start(
                host: "127.0.0.1", port: server.port,
                routes: .init(
                    metrics: MetricsRegistry(), health: { .healthy }, readiness: { .healthy }))
        }
        #expect(
            AdminError.cannotListen(host: "::1", port: 1, errno: EACCES).description
                == "admin.listen: cannot listen on ::1 port 1: Permission denied")
    }

    @Test func `stopping ends the service, twice is once`() throws {
        let server = try serve()
        server.stop()
        server.stop()
        #expect(get(server.port, "/healthz") == "not connected")
    }
}
