"""What a second lane costs: CPU time per push of the whole process with two lanes over that with
one. Two worlds of their own take turns; the ratio is the median of the rounds' ratios."""

import world

TITLE = "Lanes, CPU per push"
PRODUCTS = ["bugle", "BenchmarkBroker"]


def measure(bench):
    rounds = 2 if bench.quick else 9
    events = 16_000 if bench.quick else 80_000
    one, two, rates, ratios = [], [], [], []
    with world.World(bench, lanes=1) as single, world.World(bench, lanes=2) as double:
        single.warm_up()
        double.warm_up()
        for _ in range(rounds):
            base, _ = single.saturate(events)
            both, rate = double.saturate(events)
            one.append(base)
            two.append(both)
            rates.append(rate)
            ratios.append(both / base)
        single.bugle.accepted_only()
        double.bugle.accepted_only()
    result = {
        "ratio": round(bench.median(ratios), 3), "us_per_push_1": round(bench.median(one), 2),
        "us_per_push_2": round(bench.median(two), 2), "pushes_per_second_2": round(bench.median(rates)),
    }
    result["table"] = [("two lanes over one", (
        f"{result['us_per_push_2']:.2f} us, one {result['us_per_push_1']:.2f} us, "
        f"ratio {result['ratio']:.2f}"))]
    return result
