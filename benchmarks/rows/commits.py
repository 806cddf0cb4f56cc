"""CPU time per push with transactional commits against plain ones: two processes on two worlds of
their own take turns with the same load. The embedded broker speaks the requests of transactions and
keeps none of their promises, which costs Bugle the same."""

import world

TITLE = "Commit modes, CPU per push"
PRODUCTS = ["bugle", "BenchmarkBroker"]


def measure(bench):
    rounds = 3 if bench.quick else 7
    events = 32_000 if bench.quick else 80_000
    cost = {"plain": [], "transactional": []}
    rate = {"plain": [], "transactional": []}
    with world.World(bench, commit="plain") as plain, \
            world.World(bench, commit="transactional") as transactional:
        for here in (plain, transactional):
            here.warm_up()
        for _ in range(rounds):
            for name, here in (("plain", plain), ("transactional", transactional)):
                cpu, pushes = here.saturate(events)
                cost[name].append(cpu)
                rate[name].append(pushes)
        for here in (plain, transactional):
            here.bugle.accepted_only()
    ratios = [mine / base for mine, base in zip(cost["transactional"], cost["plain"])]
    result = {
        "ratio": round(bench.median(ratios), 3), "ratios": [round(ratio, 2) for ratio in ratios],
        "us_per_push": {name: round(bench.median(values), 2) for name, values in cost.items()},
        "pushes_per_second": {name: round(bench.median(values)) for name, values in rate.items()},
        "events_per_round": events, "rounds": rounds,
    }
    result["table"] = [(
        "transactional over plain",
        f"{result['us_per_push']['transactional']:.2f} us, {result['us_per_push']['plain']:.2f} "
        f"us, ratio {result['ratio']:.2f}")]
    return result
