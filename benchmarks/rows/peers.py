"""Another client of APNs in the same run, against the same nghttpd, with the same header fields,
tokens, size of body, connections and requests in flight: aioapns, from PyPI, in a Python
environment of its own under `.build`. CPU time per request, start-up taken off by a run of few
requests. h2load beside it is what the other rows compare with.
"""

import os
import subprocess
import sys

import world

TITLE = "Other clients, CPU per request"
PRODUCTS = []

AIOAPNS = "4.0"
CONNECTIONS, IN_FLIGHT, BODY_BYTES = 2, 200, 374


def environment(bench):
    """The Python of an environment with aioapns; None, and why, when it cannot be had."""
    folder = os.path.join(os.path.dirname(bench.products), "peers")
    python = os.path.join(folder, "bin", "python")
    probe = [python, "-c", "import aioapns"]
    if os.path.exists(python) and subprocess.run(probe, capture_output=True).returncode == 0:
        return python, ""
    for command in ([sys.executable, "-m", "venv", folder],
                    [python, "-m", "pip", "install", "--quiet", f"aioapns=={AIOAPNS}"]):
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            return None, (done.stderr.strip().splitlines() or ["pip failed"])[-1]
    return python, ""


def measure(bench):
    python, problem = environment(bench)
    if python is None:
        return {"table": [("aioapns " + AIOAPNS, "not measured: " + problem)]}
    requests = 3_000 if bench.quick else 20_000
    rounds = 1 if bench.quick else 5
    users = 400
    gateway = world.Nghttpd(bench, users)
    try:
        tokens = os.path.join(bench.scratch, "tokens")
        with open(tokens, "w") as file:
            file.writelines(token + "\n" for user in range(users)
                            for token in world.tokens_of(user))
        script = os.path.join(os.path.dirname(os.path.dirname(__file__)), "peers",
                              "aioapns_client.py")

        def aioapns(count):
            cpu, _, _ = bench.measured(
                [python, script, str(gateway.port), gateway.certificate, gateway.signing_key,
                 tokens, str(count), str(CONNECTIONS), str(IN_FLIGHT), str(BODY_BYTES)])
            return cpu

        few = IN_FLIGHT
        theirs, base = [], []
        for _ in range(rounds):
            theirs.append((aioapns(requests + few) - aioapns(few)) / requests)
            base.append(world.h2load(bench, gateway, BODY_BYTES, 40_000)[0])
    finally:
        gateway.stop()
    cost, least = bench.median(theirs), bench.median(base)
    return {
        "aioapns": AIOAPNS, "us_per_request": round(cost, 1),
        "h2load_us_per_request": round(least, 2), "ratio": round(cost / least, 1),
        "table": [(f"aioapns {AIOAPNS}, 2 connections, 200 in flight",
                   f"{cost:.0f} us, h2load {least:.2f} us, ratio {cost / least:.0f}")],
    }
