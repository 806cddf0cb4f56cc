"""What a flood of marketing costs critical events. 200 critical events a second, each for 2.5
devices, from the publisher's timestamp to the gateway's answer: first alone, then while a topic of
the class marketing always holds some thousand events ahead of Bugle, more than it can send. The
gateway answers after 40 ms. The flood is held back once by what the gateway may be sent at once
(`in_flight_per_bulkhead`, so low that the processor has time to spare) and once by nothing but the
processor, which broker, publisher, reader of the results, Redis and gateway share with Bugle. The
target is a p99 under twice that without the flood.
"""

import world

TITLE = "Critical events while marketing floods"
PRODUCTS = ["bugle", "BenchmarkBroker"]

RATE = 200
AHEAD = 4_000
ROUND_TRIP = 40
EVENTS = [{"name": "push.events", "class": "critical"},
          {"name": "push.marketing", "class": "marketing"}]


# Requests at once of which marketing may have six tenths: some 3,000 pushes a second.
NARROW = 200


def flooded(bench, dispatch):
    seconds = 6 if bench.quick else 60
    with world.World(bench, gateway=world.Simulator(bench, ROUND_TRIP), connections=(2, 10),
                     kafka={"fetch.wait.max.ms": 5}, events=EVENTS, dispatch=dispatch) as here:
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
    return {"ratio": round(ratio, 2), "idle": idle, "flooded": busy,
            "flood_pushes_per_second": round(here.pushes(flood["flooded"]) / flood["seconds"])}


def measure(bench):
    result = {"gateway": flooded(bench, {"in_flight_per_bulkhead": NARROW}),
              "processor": flooded(bench, None)}
    result["ratio"] = result["gateway"]["ratio"]
    result["table"] = []
    for name, one in result.items():
        if not isinstance(one, dict):
            continue
        idle, busy = one["idle"]["whole"], one["flooded"]["whole"]
        result["table"].append((
            f"p50 / p99 of {RATE} critical events a second, flood held back by the {name}",
            f"{idle['p50_ms']} / {idle['p99_ms']} ms idle, {busy['p50_ms']} / {busy['p99_ms']} ms "
            f"beside {one['flood_pushes_per_second']:,} pushes of marketing a second: "
            f"{one['ratio']:.2f} times the p99"))
    return result
