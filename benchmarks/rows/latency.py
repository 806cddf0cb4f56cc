"""What Bugle adds to a push at half load, for gateways that answer after 0, 40 and 150 ms.

Half load is half the rate that the pipeline reaches on this machine when it is saturated. `added`
is the time from the consumption of an event to the HEADERS of its push plus the time from the
gateway's answer to the hand-over of the result to the Kafka producer; each result's own
times and its record's timestamp tell them, in whole milliseconds of one clock. Before and behind
that lie Kafka's own shares, which the mock cluster cannot show fairly: `arrival`, from the
publisher's timestamp to consumption, and `delivery`, from the answer to a reader that has the
result. Gateway 0 is nghttpd, the far ones are `bugle simulate`.
"""

import world

TITLE = "Latency that Bugle adds at half load"
PRODUCTS = ["bugle", "BenchmarkBroker"]

ROUND_TRIPS = (0, 40, 150)


def measure(bench):
    seconds = 5 if bench.quick else 60
    result = {"table": [], "seconds": seconds}
    worlds = {}
    try:
        for delay in ROUND_TRIPS:
            gateway = world.Simulator(bench, delay) if delay else None
            worlds[delay] = world.World(bench, gateway=gateway)
        for here in worlds.values():
            here.warm_up()
        most = getattr(bench, "pushes_per_second", None)
        if most is None:
            most = bench.median(worlds[0].saturate(16_000)[1] for _ in range(3))
        rate = int(most / 2 / 2.5) // 4 * 4
        result["pushes_per_second"] = rate * 5 // 2
        for delay, here in worlds.items():
            here.broker.tell("meter")
            here.broker.tell(f"rate {rate} {seconds}")
            here.bugle.wait_for(here.pushes(rate * seconds))
            report = here.broker.tell("report")
            here.broker.tell("unmeter")
            here.bugle.accepted_only()
            result[f"round_trip_{delay}_ms"] = report
            result["table"].append((
                f"round trip {delay} ms: p50 / p99 / p99.9",
                " / ".join(str(report["added"][key]) for key in ("p50_ms", "p99_ms", "p999_ms"))
                + f" ms; before HEADERS p99 {report['before_headers']['p99_ms']} ms, "
                f"after the answer p99 {report['after_answer']['p99_ms']} ms"))
    finally:
        for here in worlds.values():
            here.close()
    result["p99_ms"] = max(result[f"round_trip_{delay}_ms"]["added"]["p99_ms"]
                           for delay in ROUND_TRIPS)
    result["table"].insert(0, ("load", f"{result['pushes_per_second']:,} pushes a second"))
    return result
