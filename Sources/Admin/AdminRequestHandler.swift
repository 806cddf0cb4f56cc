internal import Base
internal import CMicroHTTPD
internal import Telemetry

/// Answers requests on libmicrohttpd's thread.
///
/// libmicrohttpd calls once when the head is read, once per piece of a body, and once at the end;
/// `state` is null in the first call of a request.
internal final class AdminRequestHandler: Sendable {
    private let routes: AdminServer.Routes

    init(_ routes: AdminServer.Routes) { self.routes = routes }

    func handle(
        _ connection: OpaquePointer, path: String, method: String,
        uploadSize: UnsafeMutablePointer<Int>,
        state: UnsafeMutablePointer<UnsafeMutableRawPointer?>
    ) -> MHD_Result {
        if state.pointee == nil {
            // Any pointer but null marks the request as seen; it is never followed.
            state.pointee = UnsafeMutableRawPointer(state)
            return .YES
        }
        if uploadSize.pointee > 0 {
            uploadSize.pointee = 0
            return .YES
        }
        return send(answer(path: path, method: method), on: connection)
    }

    private struct Answer {
        var status: UInt32
        var type: StaticString = "text/plain; charset=utf-8"
        let body = ByteWriter()
    }

    private func answer(path: String, method: String) -> Answer {
        if method != "GET" && method != "HEAD" {
            let answer = Answer(status: 405)
            answer.body.append("only GET and HEAD are answered\n" as StaticString)
            return answer
        }
        switch path {
        case "/metrics":
            let answer = Answer(status: 200, type: "text/plain; version=0.0.4; charset=utf-8")
            routes.metrics.writeExposition(to: answer.body)
            return answer
        case "/healthz":
            return answer(routes.health(), passing: "ok", failing: "failing")
        case "/readyz":
            return answer(routes.readiness(), passing: "ready", failing: "not ready")
        case "/":
            let answer = Answer(status: 200, type: "text/html; charset=utf-8")
            StatusPage.write(to: answer.body)
            return answer
        case "/status.json":
            let answer = Answer(status: 200, type: "application/json")
            routes.status(answer.body)
            return answer
        default:
            let answer = Answer(status: 404)
            answer.body.append(
                "not found; there are /, /status.json, /metrics, /healthz, /readyz\n"
                    as StaticString)
            return answer
        }
    }

    private func answer(
        _ report: HealthReport, passing: StaticString, failing: StaticString
    ) -> Answer {
        let answer = Answer(status: report.isHealthy ? 200 : 503, type: "application/json")
        report.writeJSON(to: answer.body, passing: passing, failing: failing)
        return answer
    }

    private func send(_ answer: Answer, on connection: OpaquePointer) -> MHD_Result {
        // libmicrohttpd copies the body, so the writer's memory may go; it asks for a mutable
        // pointer for the sake of its other modes only.
        let bytes = UnsafeMutableRawPointer(mutating: answer.body.bytes.baseAddress)
        guard
            let response = MHD_create_response_from_buffer(
                answer.body.count, bytes, .RESPMEM_MUST_COPY)
        else { return .NO }
        defer { MHD_destroy_response(response) }
        addHeader("Content-Type", answer.type, to: response)
        addHeader("Cache-Control", "no-store", to: response)
        addHeader("X-Content-Type-Options", "nosniff", to: response)
        addHeader("Content-Security-Policy", StatusPage.policy, to: response)
        if answer.status == 405 { addHeader("Allow", "GET, HEAD", to: response) }
        return MHD_queue_response(connection, answer.status, response)
    }

    private func addHeader(
        _ name: StaticString, _ value: StaticString, to response: OpaquePointer
    ) {
        // Literals end with a NUL.
        name.utf8Start.withMemoryRebound(to: CChar.self, capacity: name.utf8CodeUnitCount + 1) {
            name in
            value.utf8Start.withMemoryRebound(
                to: CChar.self, capacity: value.utf8CodeUnitCount + 1
            ) { value in
                _ = MHD_add_response_header(response, name, value)
            }
        }
    }
}
