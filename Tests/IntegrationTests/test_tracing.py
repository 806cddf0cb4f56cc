"""Traces: a receiver that is not ours reads what Bugle exports by the protocol's own definitions, and
results carry the trace of their event on."""

import base64
import http.server
import json
import pathlib
import random
import socket
import tempfile
import threading
import time

from google.protobuf import json_format
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2
from opentelemetry.proto.trace.v1 import trace_pb2

import harness
from harness import event, wait_until

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = "00f067aa0ba902b7"


class Collector:
    """Takes spans over HTTP and keeps them, or answers as it is told."""

    def __init__(self):
        self.spans, self.resources, self.headers, self.faults = [], [], [], []
        self.status = 200
        collector = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if collector.status == 200:
                    try:
                        collector.take(self.path, dict(self.headers), body)
                    except Exception as fault:  # the test tells it
                        collector.faults.append(repr(fault))
                self.send_response(collector.status)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"{}")

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def take(self, path, headers, body):
        if path != "/v1/traces" or headers.get("Content-Type") != "application/json":
            raise ValueError(f"{path} {headers}")
        request = trace_service_pb2.ExportTraceServiceRequest()
        # OTLP's JSON has ids in hex where Protobuf's has base64; all else is Protobuf's.
        json_format.ParseDict(ids_in_base64(json.loads(body)), request)
        self.headers.append(headers)
        for resource in request.resource_spans:
            self.resources.append(attributes(resource.resource))
            for scope in resource.scope_spans:
                self.spans += scope.spans

    def close(self):
        self.server.shutdown()
        self.server.server_close()


def ids_in_base64(value):
    if isinstance(value, list):
        return [ids_in_base64(item) for item in value]
    if not isinstance(value, dict):
        return value
    return {
        name: base64.b64encode(bytes.fromhex(item)).decode()
        if name in ("traceId", "spanId", "parentSpanId") else ids_in_base64(item)
        for name, item in value.items()}


def attributes(holder):
    return {a.key: getattr(a.value, a.value.WhichOneof("value")) for a in holder.attributes}


class Tracing(harness.WorldTest):
    faults = harness.dead_tokens("dead", (5, 20))

    @classmethod
    def setUpClass(cls):
        cls.collector = Collector()
        cls.addClassCleanup(cls.collector.close)
        cls.settings = {"tracing": {"endpoint": f"http://127.0.0.1:{cls.collector.port}"}}
        super().setUpClass()
        generator = random.Random(9)
        cls.devices = [
            harness.device(generator, "ada", "ada-phone"),
            harness.device(generator, "ada", "ada-tablet", "fcm"),
            harness.device(generator, "grace", "grace-phone", mark="dead")]
        cls.world.register(cls.devices)

    def trace(self, id, user, flags="01", trace=TRACE):
        self.world.kafka.publish(
            harness.EVENTS, [(user, event(id, user))],
            headers={"traceparent": f"00-{trace}-{PARENT}-{flags}"})
        self.world.wait_settled(60)

    def spans(self, trace):
        return [span for span in self.collector.spans if span.trace_id.hex() == trace]

    def test_spans_of_an_event_hang_together_and_its_results_carry_them_on(self):
        self.trace("traced-1", "ada")
        spans = wait_until(
            lambda: len(self.spans(TRACE)) >= 4 and self.spans(TRACE), 30, "four spans")
        self.assertEqual(self.collector.faults, [])
        self.assertEqual(len(spans), 4)
        (consumer,) = [s for s in spans if s.kind == trace_pb2.Span.SPAN_KIND_CONSUMER]
        self.assertEqual(consumer.parent_span_id.hex(), PARENT)
        self.assertEqual(attributes(consumer)["messaging.destination.name"], harness.EVENTS)
        self.assertEqual(attributes(consumer)["bugle.event_id"], "traced-1")
        others = [s for s in spans if s is not consumer]
        self.assertEqual({s.parent_span_id for s in others}, {consumer.span_id})
        self.assertEqual(sorted(s.name for s in others),
                         ["look up addresses", "send apns", "send fcm"])
        self.assertEqual(len({s.span_id for s in spans}), 4)
        for span in spans:
            self.assertLessEqual(span.start_time_unix_nano, span.end_time_unix_nano)
            self.assertEqual(span.status.code, trace_pb2.Status.STATUS_CODE_UNSET)
        for span in others[-2:]:
            self.assertEqual(attributes(span)["bugle.outcome"], "accepted")
            self.assertEqual(attributes(span)["http.response.status_code"], 200)
        self.assertEqual(self.collector.resources[-1]["service.name"], "bugle")
        results = [r for r in self.world.kafka.read(harness.RESULTS)
                   if r.json["event_id"] == "traced-1"]
        self.assertEqual(len(results), 2)
        for result in results:
            self.assertEqual(
                result.headers["traceparent"], f"00-{TRACE}-{consumer.span_id.hex()}-01")

    def test_a_dead_token_is_an_error_and_nobody_is_named(self):
        trace = "1" * 32
        self.trace("traced-2", "grace", trace=trace)
        spans = wait_until(lambda: len(self.spans(trace)) >= 3 and self.spans(trace), 30, "spans")
        (send,) = [s for s in spans if s.name == "send apns"]
        self.assertEqual(send.status.code, trace_pb2.Status.STATUS_CODE_ERROR)
        self.assertEqual(attributes(send)["bugle.reason"], "Unregistered")
        text = str(spans)
        for device in self.devices:
            for secret in [device.token, device.token_hash, device.install, "grace"]:
                self.assertNotIn(secret, text)

    def test_what_its_caller_does_not_record_is_carried_and_not_exported(self):
        trace = "2" * 32
        self.trace("traced-3", "ada", flags="00", trace=trace)
        self.trace("traced-4", "ada", trace="3" * 32)
        wait_until(lambda: self.spans("3" * 32), 30, "the later trace")
        self.assertEqual(self.spans(trace), [])
        for record in self.world.kafka.read(harness.RESULTS):
            if record.json["event_id"] == "traced-3":
                self.assertRegex(record.headers["traceparent"], f"^00-{trace}-[0-9a-f]{{16}}-00$")

    def test_a_header_that_breaks_the_rules_is_none(self):
        self.world.kafka.publish(
            harness.EVENTS, [("ada", event("traced-5", "ada"))],
            headers={"traceparent": "00-" + "0" * 32 + f"-{PARENT}-01"})
        self.world.wait_settled(60)
        for record in self.world.kafka.read(harness.RESULTS):
            if record.json["event_id"] == "traced-5":
                self.assertNotIn("traceparent", record.headers)

    def test_a_collector_that_fails_costs_spans_and_nothing_else(self):
        self.collector.status = 503
        self.addCleanup(setattr, self.collector, "status", 200)
        self.trace("traced-6", "ada", trace="4" * 32)

        def refused():
            return [float(line.split()[-1]) for line in self.world.get("/metrics")[1].splitlines()
                    if line.startswith("bugle_trace_spans_refused_total")]

        wait_until(lambda: refused() and refused()[0] >= 4, 30, "spans that were refused")
        found = [r for r in self.world.results() if r["event_id"] == "traced-6"]
        self.assertEqual([r["outcome"] for r in found], ["accepted"] * 2)


def nobody(prefix, count):
    """Events of people without devices: they end with the look-up."""
    return [event(f"{prefix}-{n}", f"nobody-{n}") for n in range(count)]


def metric(world, name):
    return sum(float(line.split()[-1]) for line in world.get("/metrics")[1].splitlines()
               if line.split(" ")[0].split("{")[0] == name)


class Sampled(harness.WorldTest):
    """Traces begin here for a share of events, and the collector asks who sends."""

    @classmethod
    def setUpClass(cls):
        cls.collector = Collector()
        cls.addClassCleanup(cls.collector.close)
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        headers = pathlib.Path(folder.name) / "headers"
        headers.write_text("Authorization: Bearer s3cret:with=signs\nX-Scope-OrgID:  shop\n")
        cls.settings = {"tracing": {
            "endpoint": f"http://127.0.0.1:{cls.collector.port}", "sample": 0.25,
            "headers_file": str(headers)}}
        super().setUpClass()

    def test_a_share_of_the_events_without_a_trace_gets_one(self):
        self.world.publish(nobody("sampled", 800))
        self.world.wait_settled(60)
        traced = [r for r in self.world.kafka.read(harness.RESULTS)
                  if r.json["event_id"].startswith("sampled-") and "traceparent" in r.headers]
        # 200, give or take eight standard deviations.
        self.assertTrue(100 < len(traced) < 300, len(traced))

        def exported():
            return [span for span in self.collector.spans
                    if str(attributes(span).get("bugle.event_id", "")).startswith("sampled-")]

        wait_until(lambda: len(exported()) >= len(traced), 30, "the spans of all of them")
        self.assertEqual(self.collector.faults, [])
        spans = {f"00-{s.trace_id.hex()}-{s.span_id.hex()}-01": s for s in exported()}
        self.assertEqual(set(spans), {r.headers["traceparent"] for r in traced})
        self.assertEqual({s.parent_span_id for s in spans.values()}, {b""})
        self.assertEqual(len({s.trace_id for s in spans.values()}), len(traced))

    def test_requests_carry_the_headers_of_the_file(self):
        self.world.publish(nobody("with-headers", 100))
        wait_until(lambda: self.collector.headers, 30, "a request")
        for headers in self.collector.headers:
            self.assertEqual(headers["Authorization"], "Bearer s3cret:with=signs")
            self.assertEqual(headers["X-Scope-OrgID"], "shop")
        self.assertNotIn("s3cret", self.world.dispatcher.tail())

    def test_a_file_that_holds_no_headers_is_an_error_that_names_it(self):
        bad = self.world.folder / "no-headers"
        bad.write_text("Bearer s3cret\n")
        settings = json.loads(json.dumps(self.world.settings))
        settings["tracing"]["headers_file"] = str(bad)
        settings["kafka"]["instance"] = "other"
        settings["admin"]["listen"] = f"127.0.0.1:{harness.free_port()}"
        config = self.world.folder / "no-headers.yaml"
        config.write_text(harness.yaml(settings) + "\n")
        done = harness.bugle("run", "--config", config)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("tracing.headers_file: expected lines such as Name: value", done.stderr)
        self.assertNotIn("s3cret", done.stderr)


class Hanging(harness.WorldTest):
    """The collector takes connections and never says a word."""

    @classmethod
    def setUpClass(cls):
        listener = socket.create_server(("127.0.0.1", 0), backlog=64)
        cls.addClassCleanup(listener.close)
        cls.settings = {"tracing": {
            "endpoint": f"http://127.0.0.1:{listener.getsockname()[1]}", "sample": 1}}
        super().setUpClass()

    def test_it_costs_spans_which_are_counted_and_holds_nothing_up(self):
        count = 6000
        self.world.publish(nobody("hanging", count))
        self.world.wait_settled(120)
        ended = [r for r in self.world.results() if r["event_id"].startswith("hanging-")]
        self.assertEqual(len(ended), count)
        # One batch waits, a queue is full behind it, and the rest is gone.
        self.assertGreater(metric(self.world, "bugle_trace_events_dropped_total"), 500)
        wait_until(lambda: metric(self.world, "bugle_trace_spans_refused_total") > 0, 30,
                   "a batch that was given up")
        self.assertEqual(metric(self.world, "bugle_trace_spans_exported_total"), 0)
        self.assertEqual(self.world.get("/healthz")[0], 200)
        self.assertIn("spans were not taken", self.world.dispatcher.tail())
        # Nor the end.
        start = time.monotonic()
        self.assertEqual(self.world.terminate(), 0, self.world.tail())
        self.assertLess(time.monotonic() - start, 15)
