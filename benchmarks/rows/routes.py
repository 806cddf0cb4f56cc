"""What a route costs: the same notification, once brought by the event, once made by a route from
its payload. CPU time per push of `bugle run` in the whole pipeline, all threads, as in the row
`pipeline`; rounds of both alternate, and the ratio is the median of the rounds' ratios. Below it,
the route's part alone: from an event's parsed JSON to the parsed words, per event, which is 2.5
pushes here.
"""

import re

import world

TITLE = "Routes, CPU per push"
PRODUCTS = ["bugle", "BenchmarkBroker", "RouteBenchmark"]

ROUTES = {"order.shipped": {
    "ttl": "1d", "title": "Your order is on its way",
    "body": "Parcel {{payload.parcel}} left our warehouse in {{payload.town}} and arrives tomorrow "
            "before noon.",
    "sound": "default",
    "data": {"order_id": "{{payload.order}}", "carrier": "{{payload.carrier}}",
             "url": "https://shop.example.com/orders/{{payload.parcel}}",
             "eta": "{{payload.eta}}"}}}


def measure(bench):
    rounds = 3 if bench.quick else 9
    events = 24_000 if bench.quick else 80_000
    spans = {False: [], True: []}
    with world.World(bench) as own, world.World(bench, routes=ROUTES, publisher=("--routed",)) as routed:
        own_bytes, routed_bytes = own.warm_up(), routed.warm_up()
        for _ in range(rounds):
            for is_routed, here in ((False, own), (True, routed)):
                spans[is_routed].append(here.saturate(events)[0])
        for here in (own, routed):
            here.bugle.accepted_only()
    ratios = [with_ / without for without, with_ in zip(spans[False], spans[True])]
    _, _, text = bench.measured([bench.product("RouteBenchmark")])
    alone = {name.strip(): int(span) for name, span in re.findall(r"(.+): (\d+) ns an event", text)}
    result = {
        "ratio": round(bench.median(ratios), 3), "ratios": [round(ratio, 2) for ratio in ratios],
        "us_per_push_without": round(bench.median(spans[False]), 2),
        "us_per_push_with": round(bench.median(spans[True]), 2),
        "payload_bytes": [own_bytes, routed_bytes], "ns_per_event": alone,
        "events_per_round": events, "rounds": rounds,
    }
    result["table"] = [
        ("whole pipeline, with a route over without",
         f"{result['us_per_push_with']:.2f} us, without {result['us_per_push_without']:.2f} us, "
         f"ratio {result['ratio']:.2f}"),
        *((name, f"{span:,} ns an event") for name, span in alone.items()),
    ]
    return result
