"""What a route costs: the same notification, once brought by the event, once made by a route from
its payload, and once by a route that gathers bursts besides. CPU time per push of `bugle run` in
the whole pipeline, all threads, as in the row `pipeline`; rounds of all three alternate, and each
ratio is the median of the rounds' ratios. Of the third, every event is a burst of its own: it has
a collapse key, opens a window and closes it, and nothing is saved by folding. Below them, the
route's part alone: from an event's parsed JSON to the parsed words, per event, which is 2.5 pushes
here.
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
GATHERED = {"order.shipped": {
    **ROUTES["order.shipped"], "collapse": "{{payload.parcel}}",
    "coalesce": {"window": "100ms", "first": "hold"}}}


def measure(bench):
    rounds = 3 if bench.quick else 9
    events = 24_000 if bench.quick else 80_000
    spans = {"own": [], "routed": [], "gathered": []}
    with world.World(bench) as own, \
            world.World(bench, routes=ROUTES, publisher=("--routed",)) as routed, \
            world.World(bench, routes=GATHERED, publisher=("--routed",)) as gathered:
        worlds = {"own": own, "routed": routed, "gathered": gathered}
        payload_bytes = [here.warm_up() for here in worlds.values()]
        for _ in range(rounds):
            for name, here in worlds.items():
                spans[name].append(here.saturate(events)[0])
        for here in worlds.values():
            # Also that no event was folded into another.
            here.bugle.accepted_only()

    def ratios_of(name, base):
        return [span / other for span, other in zip(spans[name], spans[base])]

    ratios, gathered_ratios = ratios_of("routed", "own"), ratios_of("gathered", "routed")
    _, _, text = bench.measured([bench.product("RouteBenchmark")])
    alone = {name.strip(): int(span) for name, span in re.findall(r"(.+): (\d+) ns an event", text)}
    result = {
        "ratio": round(bench.median(ratios), 3), "ratios": [round(ratio, 2) for ratio in ratios],
        "us_per_push_without": round(bench.median(spans["own"]), 2),
        "us_per_push_with": round(bench.median(spans["routed"]), 2),
        "ratio_gathered": round(bench.median(gathered_ratios), 3),
        "ratios_gathered": [round(ratio, 2) for ratio in gathered_ratios],
        "us_per_push_gathered": round(bench.median(spans["gathered"]), 2),
        "payload_bytes": payload_bytes, "ns_per_event": alone,
        "events_per_round": events, "rounds": rounds,
    }
    result["table"] = [
        ("whole pipeline, with a route over without",
         f"{result['us_per_push_with']:.2f} us, without {result['us_per_push_without']:.2f} us, "
         f"ratio {result['ratio']:.2f}"),
        ("whole pipeline, with a window for each event over none",
         f"{result['us_per_push_gathered']:.2f} us, without {result['us_per_push_with']:.2f} us, "
         f"ratio {result['ratio_gathered']:.2f}"),
        *((name, f"{span:,} ns an event") for name, span in alone.items()),
    ]
    return result
