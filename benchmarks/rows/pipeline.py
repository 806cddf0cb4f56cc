"""The whole pipeline against h2load: CPU time per push of `bugle run`, all threads, user and
system, from the moment when all events lie in Kafka to the moment when every result is delivered
there. Broker, Redis and gateway are processes of their own. Each event is native JSON of about 500
bytes for 1 to 4 devices, 2.5 on average; results are compressed with lz4.

h2load asks the same nghttpd for the same paths, with the same header fields, a body of the same
size, and as many connections and streams. Runs of both alternate; the ratio is the median of the
rounds' ratios. h2load lets every field into its compression table, Bugle keeps secrets and unique
values out of it.
"""

import os

import world

TITLE = "Pipeline, CPU per push"
PRODUCTS = ["bugle", "BenchmarkBroker"]

CONNECTIONS, STREAMS = 2, 100
JWT = ("bearer eyJhbGciOiJFUzI1NiIsImtpZCI6IkFCQzEyM0RFRkcifQ."
       "eyJpc3MiOiJERUYxMjNHSElKIiwiaWF0IjoxNzY0NDYwODAwfQ."
       "M2Y4b3VyU2lnbmF0dXJlSXNGaWN0aW9uYWxBbmRPbmx5SGVyZUZvckl0c0xlbmd0aE9rQXl5"
       "WnpaMTIzNDU2Nzg5MA")
FIELDS = [
    ("authorization", JWT), ("apns-topic", world.TOPIC), ("apns-push-type", "alert"),
    ("apns-priority", "10"), ("apns-id", "3f2504e0-4f89-41d3-9a0c-0305e82c3301"),
    ("apns-expiration", "1764547200"), ("apns-collapse-id", "order-123456"),
]


def h2load(bench, gateway, body_bytes, requests):
    uris, body = os.path.join(bench.scratch, "uris"), os.path.join(bench.scratch, "push-body")
    with open(uris, "w") as file:
        file.writelines(f"https://127.0.0.1:{gateway.port}{path}\n" for path in gateway.paths)
    with open(body, "wb") as file:
        file.write(bytes(97 + index % 26 for index in range(body_bytes)))
    command = ["h2load", "-n", str(requests), "-c", str(CONNECTIONS), "-m", str(STREAMS),
               "-d", body, "-i", uris]
    for name, value in FIELDS:
        command += ["-H", f"{name}: {value}"]
    cpu, wall, text = bench.measured(command)
    if f"{requests} succeeded" not in text:
        raise SystemExit(f"h2load did not succeed:\n{text}")
    return cpu / requests, requests / wall


def measure(bench):
    rounds = 3 if bench.quick else 9
    events = 32_000 if bench.quick else 80_000
    ours, rates, theirs, their_rates, ratios = [], [], [], [], []
    with world.World(bench, connections=CONNECTIONS) as here:
        body_bytes = here.warm_up()
        for _ in range(rounds):
            base, base_rate = h2load(bench, here.gateway, body_bytes, here.pushes(events))
            mine, rate = here.saturate(events)
            theirs.append(base)
            their_rates.append(base_rate)
            ours.append(mine)
            rates.append(rate)
            ratios.append(mine / base)
        here.bugle.accepted_only()
    bench.pushes_per_second = bench.median(rates)
    result = {
        "ratio": round(bench.median(ratios), 3), "ratios": [round(ratio, 2) for ratio in ratios],
        "us_per_push": round(bench.median(ours), 2),
        "h2load_us_per_request": round(bench.median(theirs), 2),
        "pushes_per_second": round(bench.median(rates)),
        "h2load_requests_per_second": round(bench.median(their_rates)),
        "payload_bytes": body_bytes, "events_per_round": events, "rounds": rounds,
    }
    result["table"] = [
        ("one lane, 2 x 100 streams",
         f"{result['us_per_push']:.2f} us, h2load {result['h2load_us_per_request']:.2f} us, "
         f"ratio {result['ratio']:.2f}"),
        ("everything on this machine", f"{result['pushes_per_second']:,} pushes a second"),
    ]
    return result
