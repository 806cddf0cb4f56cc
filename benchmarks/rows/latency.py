"""What Bugle adds to a push at half load, for gateways that answer after 0, 40 and 150 ms.

Half load is half the results a second that the same gateway's pipeline gives when the publisher
keeps it saturated, all parts of the benchmark at work: broker, publisher, reader of the results,
Redis and gateway share the machine with Bugle.

`added` is the time from the consumption of an event to the HEADERS of its push plus the time from
the gateway's answer to the hand-over of the result to the Kafka producer; each result's own
times and its record's timestamp tell them, in whole milliseconds of one clock. Before and behind
that lie Kafka's own shares, which the mock cluster cannot show fairly: `arrival`, from the
publisher's timestamp to consumption, and `delivery`, from the answer to a reader that has the
result. The mock cluster answers a fetch that found nothing only after the whole wait that it
names, where Kafka answers as soon as there is a record: so that events do not come in bursts of a
tenth of a second, fetches name a short wait here.

Gateway 0 is nghttpd, the far ones are `bugle simulate`. Pools may grow as they do by default, from
2 connections to 10; they have grown before anything is measured.
"""

import world

TITLE = "Latency that Bugle adds at half load"
PRODUCTS = ["bugle", "BenchmarkBroker"]

ROUND_TRIPS = (0, 40, 150)
# Events that lie ahead of the results while the pipeline is saturated.
AHEAD = 4_000


def half_load(here, seconds):
    """Saturates a world; returns half the events a second that it finished."""
    here.broker.tell("meter")
    flood = here.broker.tell(f"saturate {AHEAD} {seconds}")
    here.bugle.wait_for(here.pushes(flood["events"]))
    return int(flood["results_per_second"] / 2 / 2.5) // 4 * 4


def measure_one(bench, delay, seconds):
    gateway = world.Simulator(bench, delay) if delay else None
    with world.World(bench, gateway=gateway, connections=(2, 10),
                     kafka={"fetch.wait.max.ms": 5}) as here:
        here.warm_up()
        rate = half_load(here, 2 if bench.quick else 10)
        # The pace of half load first for a while that does not count.
        here.broker.tell(f"rate {rate} 1")
        here.broker.tell("report")
        here.broker.tell(f"rate {rate} {seconds}")
        here.bugle.wait_for(here.pushes(rate * (seconds + 1)))
        report = here.broker.tell("report")
        here.bugle.accepted_only()
    report["pushes_per_second"] = rate * 5 // 2
    return report


def measure(bench):
    seconds = 3 if bench.quick else 60
    result = {"table": [], "seconds": seconds}
    for delay in ROUND_TRIPS:
        report = measure_one(bench, delay, seconds)
        result[f"round_trip_{delay}_ms"] = report
        result["table"].append((
            f"round trip {delay} ms, {report['pushes_per_second']:,} a second: p50 / p99 / p99.9",
            " / ".join(str(report["added"][key]) for key in ("p50_ms", "p99_ms", "p999_ms"))
            + f" ms; before HEADERS p99 {report['before_headers']['p99_ms']} ms, "
            f"after the answer p99 {report['after_answer']['p99_ms']} ms"))
    result["p99_ms"] = max(result[f"round_trip_{delay}_ms"]["added"]["p99_ms"]
                           for delay in ROUND_TRIPS)
    return result
