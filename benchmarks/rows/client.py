"""The HTTP/2 client alone against h2load: CPU time per request, saturated, over TLS, with the same
server process, header fields, body, connections and streams. Runs of both alternate; the ratio is
the median of the rounds' ratios. CPU is the whole process's, start-up included, user and system.

Two ways to send APNs' header fields: all indexable, as h2load sends them, and as Bugle sends them,
with the secret and the unique ones never indexed, which puts some 300 more bytes on the wire.
"""

import os
import socket
import subprocess
import time

TITLE = "HTTP/2 client, CPU per request"
PRODUCTS = ["ClientBenchmark"]

BODY_BYTES = 300
JWT = ("bearer eyJhbGciOiJFUzI1NiIsImtpZCI6IkFCQzEyM0RFRkcifQ."
       "eyJpc3MiOiJERUYxMjNHSElKIiwiaWF0IjoxNzY0NDYwODAwfQ."
       "M2Y4b3VyU2lnbmF0dXJlSXNGaWN0aW9uYWxBbmRPbmx5SGVyZUZvckl0c0xlbmd0aE9rQXl5"
       "WnpaMTIzNDU2Nzg5MA")
# The fields of one push; "!" marks those that Bugle never lets into a compression table.
HEADERS = [
    ("!authorization", JWT),
    ("apns-topic", "com.example.app"),
    ("apns-push-type", "alert"),
    ("apns-priority", "10"),
    ("!apns-expiration", "1764547200"),
    ("!apns-id", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"),
    ("!apns-collapse-id", "order-1234567"),
]
TOKEN = "a1b2c3d4" * 8
PATH = "/3/device/" + TOKEN


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def start_server(bench):
    """An nghttpd that answers 200 with an empty body, as APNs does."""
    folder = os.path.join(bench.scratch, "htdocs", "3", "device")
    os.makedirs(folder, exist_ok=True)
    open(os.path.join(folder, TOKEN), "w").close()
    key = os.path.join(bench.scratch, "key.pem")
    certificate = os.path.join(bench.scratch, "certificate.pem")
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
         "-nodes", "-keyout", key, "-out", certificate, "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"],
        check=True, stderr=subprocess.DEVNULL)
    port = free_port()
    server = subprocess.Popen(
        ["nghttpd", "-d", os.path.join(bench.scratch, "htdocs"), "-a", "127.0.0.1", str(port), key,
         certificate], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return server, port, certificate
        time.sleep(0.05)
    server.kill()
    raise SystemExit("nghttpd did not start")


def h2load(bench, port, requests, connections, streams, headers):
    body = os.path.join(bench.scratch, "body")
    with open(body, "wb") as file:
        file.write(bytes(97 + index % 26 for index in range(BODY_BYTES)))
    command = ["h2load", "-n", str(requests), "-c", str(connections), "-m", str(streams), "-d",
               body]
    for name, value in headers:
        command += ["-H", f"{name.lstrip('!')}: {value}"]
    cpu, wall, text = bench.measured(command + [f"https://127.0.0.1:{port}{PATH}"])
    if f"{requests} succeeded" not in text:
        raise SystemExit(f"h2load did not succeed:\n{text}")
    return cpu / requests, wall


def bugle(bench, port, certificate, requests, connections, streams, headers):
    command = [bench.product("ClientBenchmark"), "--port", str(port), "--ca", certificate,
               "--requests", str(requests), "--connections", str(connections),
               "--streams", str(streams), "--body-bytes", str(BODY_BYTES), "--path", PATH]
    for name, value in headers:
        command += ["--header", f"{name}: {value}"]
    cpu, wall, text = bench.measured(command)
    if f'"statuses": "[200: {requests}]"' not in text:
        raise SystemExit(f"the client did not succeed:\n{text}")
    return cpu / requests, wall


def measure(bench):
    plain = [(name.lstrip("!"), value) for name, value in HEADERS]
    cases = [
        ("2 x 100 streams, APNs headers, never indexed as sent", "", 2, 100, HEADERS),
        ("2 x 100 streams, APNs headers, all indexable", "indexable", 2, 100, plain),
        ("2 x 100 streams, no extra headers", "bare", 2, 100, []),
        ("2 x 8 streams, APNs headers, never indexed as sent", "few_streams", 2, 8, HEADERS),
    ]
    if bench.quick:
        cases = cases[:1]
    rounds = 3 if bench.quick else 11
    requests = 30_000 if bench.quick else 200_000
    server, port, certificate = start_server(bench)
    result = {"table": [], "requests_per_round": requests, "rounds": rounds}
    try:
        for title, key, connections, streams, headers in cases:
            ours, theirs, ratios = [], [], []
            for _ in range(rounds):
                base, _ = h2load(bench, port, requests, connections, streams, headers)
                mine, _ = bugle(
                    bench, port, certificate, requests, connections, streams, headers)
                theirs.append(base)
                ours.append(mine)
                ratios.append(mine / base)
            entry = {"ratio": round(bench.median(ratios), 3),
                     "us_per_request": round(bench.median(ours), 2),
                     "h2load_us_per_request": round(bench.median(theirs), 2)}
            result.update(entry if not key else {key: entry})
            result["table"].append(
                (title, f"{entry['us_per_request']:.2f} us, h2load "
                        f"{entry['h2load_us_per_request']:.2f} us, ratio {entry['ratio']:.2f}"))
    finally:
        server.kill()
        server.wait()
    return result
