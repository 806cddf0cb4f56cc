"""Building a push, without sending it: the CPU time per push at APNs, web push, of which encryption
is nearly all, and Expo, a hundred messages in a compressed request."""

import json

TITLE = "Building a push"
PRODUCTS = ["GatewayBenchmark"]


def measure(bench):
    rounds = 3 if bench.quick else 11
    _, _, text = bench.measured([bench.product("GatewayBenchmark"), str(rounds)])
    result = json.loads(text.strip().splitlines()[-1])
    result["table"] = [
        ("APNs", f"{result['apns_us']:.2f} us"),
        ("web push", f"{result['webpush_us']:.1f} us, target at most 150"),
        ("  encryption of 300 bytes", f"{result['webpush_encryption_us']:.1f} us"),
        ("  encryption of 3,993 bytes", f"{result['webpush_encryption_largest_us']:.1f} us"),
        ("encrypting 300 bytes for a device", f"{result['device_encryption_us']:.1f} us"),
        ("encrypting 2,600 bytes for a device", f"{result['device_encryption_largest_us']:.1f} us"),
        ("Expo, per message of 100", f"{result['expo_us']:.2f} us"),
    ]
    return result
