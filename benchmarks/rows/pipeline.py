"""The whole pipeline against h2load: CPU time per push of `bugle run`, all threads, user and
system, from the moment when all events lie in Kafka to the moment when every result is delivered
there. Broker, Redis and gateway are processes of their own. Each event is native JSON of about 500
bytes for 1 to 4 devices, 2.5 on average; results are compressed with lz4.

h2load asks the same nghttpd for the same paths, with the same header fields, a body of the same
size, and as many connections and streams. Runs of both alternate; the ratio is the median of the
rounds' ratios. h2load lets every field into its compression table, Bugle keeps secrets and unique
values out of it.
"""

import world

TITLE = "Pipeline, CPU per push"
PRODUCTS = ["bugle", "BenchmarkBroker"]

CONNECTIONS, STREAMS = 2, 100


def measure(bench):
    rounds = 3 if bench.quick else 9
    events = 24_000 if bench.quick else 80_000
    ours, rates, theirs, their_rates, ratios = [], [], [], [], []
    with world.World(bench, connections=(CONNECTIONS, CONNECTIONS)) as here:
        body_bytes = here.warm_up()
        for _ in range(rounds):
            base, base_rate = world.h2load(
                bench, here.gateway, body_bytes, here.pushes(events), CONNECTIONS, STREAMS)
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
