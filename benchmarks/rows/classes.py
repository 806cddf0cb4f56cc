"""What a flood of marketing costs critical events. 200 critical events a second, each for 2.5
devices, from the publisher's timestamp to the gateway's answer: first alone, then while a topic of
the class marketing always holds some thousand events ahead of Bugle, more than it can send. The
gateway answers after 40 ms. Broker, publisher, reader of the results, Redis and gateway share the
machine with Bugle, so that the flood takes their time as well. The target is a p99 under twice that
without the flood.
"""

import world

TITLE = "Critical events while marketing floods"
PRODUCTS = ["bugle", "BenchmarkBroker"]

RATE = 200
AHEAD = 4_000
ROUND_TRIP = 40
EVENTS = [{"name": "push.events", "class": "critical"},
          {"name": "push.marketing", "class": "marketing"}]


def measure(bench):
    seconds = 6 if bench.quick else 60
    with world.World(bench, gateway=world.Simulator(bench, ROUND_TRIP), connections=(2, 10),
                     kafka={"fetch.wait.max.ms": 5}, events=EVENTS) as here:
        here.warm_up()
        here.broker.tell("meter")
        # As long as it takes for pools to have grown.
        flood = here.broker.tell(f"flood {RATE} {3 if bench.quick else 20} {AHEAD}")
        here.bugle.wait_for(here.pushes(flood["events"] + flood["flooded"]))
        here.broker.tell("report")
        quiet = here.broker.tell(f"rate {RATE} {seconds}")
        here.bugle.wait_for(here.pushes(quiet["events"]))
        idle = here.broker.tell("report")
        flood = here.broker.tell(f"flood {RATE} {seconds} {AHEAD}")
        here.bugle.wait_for(here.pushes(flood["events"] + flood["flooded"]))
        busy = here.broker.tell("report")
        here.bugle.accepted_only()
    ratio = busy["whole"]["p99_ms"] / max(idle["whole"]["p99_ms"], 1)
    result = {"ratio": round(ratio, 2), "idle": idle, "flooded": busy,
              "flood_pushes_per_second": round(here.pushes(flood["flooded"]) / flood["seconds"])}
    result["table"] = [(
        f"p50 / p99 of {RATE} critical events a second, idle",
        f"{idle['whole']['p50_ms']} / {idle['whole']['p99_ms']} ms"), (
        f"beside {result['flood_pushes_per_second']:,} pushes of marketing a second",
        f"{busy['whole']['p50_ms']} / {busy['whole']['p99_ms']} ms, {ratio:.2f} times the p99")]
    return result
