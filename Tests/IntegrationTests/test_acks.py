"""Acknowledgements of devices: what clients say on push.acks, read back as the rate in /metrics."""

import fractions
import random
import uuid

import harness
from contract import errors
from harness import event, wait_until

ACKS = "push.acks"
ONE_IN = 32  # pushes of which acknowledgements are counted, by their message_id alone
DEVICES = 60
EVENTS = 1500


def is_sampled(message):
    return uuid.UUID(message).bytes[-1] % ONE_IN == 0


class Acknowledgements(harness.WorldTest):
    faults = harness.dead_tokens("dead")
    topics = [ACKS]

    def setUp(self):
        self.seed = harness.seed()
        self.generator = random.Random(self.seed)

    def counted(self, name):
        """The series of a metric by gateway, and by type where it has one."""
        found = {}
        for line in self.world.get("/metrics")[1].splitlines():
            if line.startswith(name + "{"):
                labels, value = line[len(name) + 1:].rsplit("} ", 1)
                pairs = dict(pair.split("=") for pair in labels.split(","))
                found[tuple(text.strip('"') for text in pairs.values())] = float(value)
        return found

    def acknowledge(self, said):
        """What clients publish: (message id, install, type) each."""
        records = [
            {"v": 1, "message_id": message, "app": "shop", "install_id": install, "type": kind,
             "ts": 1_767_225_690_000} for message, install, kind in said]
        for record in records[:5]:
            self.assertEqual(errors(ACKS, record), [])
        self.world.kafka.publish(ACKS, [(r["install_id"], r) for r in records])

    def test_the_rate_is_what_clients_acknowledged(self):
        world = self.world
        kinds = ["apns", "fcm"]
        devices = [
            harness.device(self.generator, f"user-{n}", f"phone-{n}", kinds[n % 2])
            for n in range(DEVICES)]
        dead = harness.device(self.generator, "gone", "gone-phone", mark="dead")
        world.register([*devices, dead])
        world.publish([event(f"ack-{n}", f"user-{n % DEVICES}") for n in range(EVENTS)])
        world.publish([event(f"gone-{n}", "gone") for n in range(50)])
        world.wait_settled(120)
        accepted = [r for r in world.results() if r["outcome"] == "accepted"]
        self.assertGreaterEqual(len(accepted), EVENTS)
        sampled = {
            gateway: [r for r in accepted if r["gateway"] == gateway and is_sampled(r["message_id"])]
            for gateway in kinds}
        self.assertGreater(min(map(len, sampled.values())), 5, f"SEED={self.seed}")
        wait_until(
            lambda: all(
                self.counted("bugle_ack_sampled_pushes_total").get((gateway,)) == len(pushes)
                for gateway, pushes in sampled.items()), 30,
            lambda: f"the sample: {self.counted('bugle_ack_sampled_pushes_total')}")

        # Three of four devices have got theirs, every fourth of those opens it. One says so twice,
        # some speak of pushes that nobody sent, one speaks in tongues.
        mine = [r for r in accepted if r["event_id"].startswith("ack-")]
        heard = [r for r in mine if self.generator.random() < 0.75]
        opened = {r["message_id"] for r in heard if self.generator.random() < 0.25}
        said = [(r["message_id"], r["install_id"], "delivered") for r in heard]
        said += [(r["message_id"], r["install_id"], "opened") for r in heard
                 if r["message_id"] in opened]
        said += said[:400]
        said += [(str(uuid.uuid5(uuid.NAMESPACE_URL, str(n))), "stranger", "delivered")
                 for n in range(200)]
        self.generator.shuffle(said)
        world.kafka.publish(ACKS, [("x", "this is no acknowledgement"), ("y", {"type": "opened"})])
        self.acknowledge(said)
        wanted = {}
        for gateway, pushes in sampled.items():
            ids = {r["message_id"] for r in pushes}
            wanted[(gateway, "delivered")] = sum(r["message_id"] in ids for r in heard)
            wanted[(gateway, "opened")] = sum(id in ids for id in opened)
        told = {}

        def agree():
            told.update(self.counted("bugle_ack_sampled_acknowledged_total"))
            return all(told.get(key) == count for key, count in wanted.items())

        wait_until(agree, 60, lambda: f"{wanted}, told {told}, SEED={self.seed}")
        self.assertEqual(sum(told.values()), sum(wanted.values()), "nothing else is counted")
        pushes = self.counted("bugle_ack_sampled_pushes_total")
        for gateway in kinds:
            rate = fractions.Fraction(
                int(told[(gateway, "delivered")]), int(pushes[(gateway,)]))
            self.assertEqual(rate, fractions.Fraction(
                wanted[(gateway, "delivered")], len(sampled[gateway])))
            # As far as so few can tell: three quarters.
            self.assertTrue(0.3 <= rate <= 1, f"{gateway}: {rate}, SEED={self.seed}")
        self.assertTrue(world.dispatcher.running())
