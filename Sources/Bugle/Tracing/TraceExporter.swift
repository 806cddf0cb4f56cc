internal import Base
internal import Config
internal import EventLoop
internal import Glibc
internal import Pipeline
internal import Synchronization
internal import Telemetry

/// Sends traced events to a collector, on a thread of its own. What a collector does not take is
/// dropped and counted: traces are worth no waiting.
internal final class TraceExporter: Sendable {
    private let isStopping = SharedFlag()
    private let thread: WorkerThread

    /// How often spans leave.
    private static let interval = TimeSpan.seconds(1)
    /// How long a collector may take.
    private static let timeout = TimeSpan.seconds(5)
    /// Events in one request.
    private static let eventsPerRequest = 256

    /// Starts exporting what lanes put into the queue.
    init(
        _ tracing: Configuration.Tracing, _ queue: TraceQueue, instance: String,
        registry: MetricsRegistry, log: Log
    ) throws(Failure) {
        let headers = try Self.headers(tracing.headersFile)
        let exported = registry.counter(
            "bugle_trace_spans_exported_total", help: "Spans that the collector has taken.")
        let refused = registry.counter(
            "bugle_trace_spans_refused_total",
            help: "Spans that the collector did not take; they are gone.")
        registry.counter(
            "bugle_trace_events_dropped_total",
            help: "Traced events whose spans found no room in the exporter's queue."
        ) { Double(queue.dropped) }
        let isStopping = isStopping
        do throws(SystemError) {
            thread = try WorkerThread(name: "traces") {
                let faults = RateLimitedLog(log, limit: 1, interval: .minutes(1))
                let writer = OTLPWriter(instance: instance)
                var isLast = false
                while !isLast {
                    isLast = isStopping.wait(upTo: Self.interval)
                    var events = queue.take()[...]
                    while !events.isEmpty {
                        let batch = Array(events.prefix(Self.eventsPerRequest))
                        events = events.dropFirst(batch.count)
                        let fault = Self.send(batch, writer, tracing, headers)
                        (fault == nil ? exported : refused).add(OTLPWriter.spanCount(batch))
                        guard let fault else { continue }
                        faults.warning("spans were not taken", ["reason": LogValue(fault)])
                        // One that does not answer must not hold up the end, which may have come
                        // while it was waited for: what is left is gone too.
                        guard isStopping.isSet else { continue }
                        refused.add(OTLPWriter.spanCount(Array(events) + queue.take()))
                        return
                    }
                }
            }
        } catch {
            throw .failed("the exporter of traces has no thread: \(error)")
        }
    }

    /// Sends what is there and stops.
    func stop() {
        isStopping.set()
        thread.join()
    }

    private static func send(
        _ events: [TracedEvent], _ writer: OTLPWriter, _ tracing: Configuration.Tracing,
        _ headers: [(name: String, value: String)]
    ) -> String? {
        let bytes = ByteWriter()
        writer.write(events, to: bytes)
        do throws(PlainHTTP.Fault) {
            let status = try PlainHTTP.post(
                host: tracing.collector.host, port: tracing.collector.port, path: tracing.path,
                headers: [("Content-Type", "application/json")] + headers, body: bytes.bytes,
                timeout: timeout)
            return (200..<300).contains(status) ? nil : "the collector answered \(status)"
        } catch {
            return error.description
        }
    }

    /// Lines `Name: value`.
    private static func headers(
        _ file: String?
    ) throws(Failure) -> [(name: String, value: String)] {
        guard let file else { return [] }
        let text: String
        do throws(SecretSourceError) {
            text = try SecretSource.file(file).read().exposed
        } catch {
            throw .failed("tracing.headers_file: \(error)")
        }
        var headers: [(name: String, value: String)] = []
        for line in text.split(whereSeparator: \.isNewline) {
            guard let colon = line.firstIndex(of: ":"), colon != line.startIndex,
                line.utf8.allSatisfy({ $0 >= 0x20 && $0 < 0x7F })
            else { throw .failed("tracing.headers_file: expected lines such as Name: value") }
            let value = line[line.index(after: colon)...].drop { $0 == " " }
            headers.append((String(line[..<colon]), String(value)))
        }
        return headers
    }
}

extension SharedFlag {
    /// Waits until it is set, or the span has passed; true when it is.
    fileprivate func wait(upTo span: TimeSpan) -> Bool {
        let deadline = SystemTime.shared.monotonic + span
        while !isSet, SystemTime.shared.monotonic < deadline {
            poll(nil, 0, 50)
        }
        return isSet
    }
}
