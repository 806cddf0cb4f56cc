"""What people said for all their devices, and how often people, devices and sources are served:
the same in every replica, over a real broker and a real Redis."""

import collections
import json
import random
import time

import harness
from harness import bugle, event, program, wait_until

QUOTA = 30
CAP = 2


def clock(hours):
    """The time of day in UTC, so many hours from now."""
    return time.strftime("%H:%M", time.gmtime(time.time() + hours * 3600))


NIGHT = {"from": clock(-1), "to": clock(3)}


class Fairness(harness.WorldTest):
    settings = {
        "content": {"quiet_hours": NIGHT},
        "caps": {
            "preferences": {"offers": f"{CAP}/1d"},
            "sources": {"noisy": {"day": QUOTA}},
        },
        "routes": {
            "offer": {"title": "An offer", "preference": "offers"},
            "news": {"title": "News", "preference": "news"},
            "night": {"title": "Later", "ttl": "1h", "quiet_hours": "hold"},
            "noise": {"title": "Noise"},
        },
    }

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.generator = random.Random(harness.seed())

    def register(self, *users):
        devices = [harness.device(self.generator, user, f"phone-{user}") for user in users]
        self.world.register(devices)
        return devices

    def say(self, user, record):
        """Writes a record of push.users, or its null, and waits until the index shows it."""
        value = record and {"v": 1, "app": "shop", "user_id": user, **record}
        self.world.kafka.publish("push.users", [(f"shop/{user}", value)])

        def shown():
            told = json.loads(self.index("get", user, "--json").stdout)["user"]
            return (told is None) == (record is None) and all(
                key == "quiet_hours" or told[key] == item for key, item in (record or {}).items())

        wait_until(shown, 30, lambda: f"{record} of {user}\n{self.world.tail()}")

    def index(self, *arguments):
        return bugle("index", *arguments, "--config", self.world.config)

    def outcomes(self, events):
        """Publishes events and tells what became of each."""
        self.world.publish(events)
        ids = [e["id"] for e in events]

        def found():
            results = collections.defaultdict(list)
            for result in self.world.results():
                results[result["event_id"]].append((result["outcome"], result.get("reason")))
            return {id: results[id] for id in ids} if all(results[id] for id in ids) else None

        wait_until(found, 60, lambda: f"results of {ids}\n{self.world.tail()}")
        return found()

    def test_what_a_person_said_holds_for_all_devices_until_it_is_forgotten(self):
        self.register("ada")
        self.say("ada", {"opt_outs": ["news"], "locale": "de-AT", "unread": 4})
        fact = {"type": "news", "user_id": "ada"}
        self.assertEqual(
            self.outcomes([{"id": "n1", **fact}]), {"n1": [("suppressed", "opted_out")]})
        why = bugle("why", "ada", "--config", self.world.config)
        self.assertIn("opted out of news", why.stdout)
        told = json.loads(bugle("why", "ada", "--config", self.world.config, "--json").stdout)
        self.assertEqual(told["user"]["unread"], 4)
        verified = self.index("verify", "--json")
        self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)

        rebuilt = self.index("rebuild", "--yes")
        self.assertEqual(rebuilt.returncode, 0, rebuilt.stdout + rebuilt.stderr)
        self.assertIn("opted out of news", self.index("get", "ada").stdout)

        self.say("ada", {"opt_outs": []})
        self.assertEqual(self.outcomes([{"id": "n2", **fact}]), {"n2": [("accepted", None)]})
        forgotten = self.index("forget", "ada", "--yes", "--json")
        self.assertEqual(forgotten.returncode, 0, forgotten.stdout + forgotten.stderr)
        self.assertEqual(json.loads(forgotten.stdout)["user_null_records"], 1)
        self.assertIsNone(json.loads(self.index("get", "ada", "--json").stdout)["user"])
        newest = {r.key: r.value for r in self.world.kafka.read("push.users")}
        self.assertIsNone(newest["shop/ada"])

    def test_quiet_hours_end_what_would_outlive_its_time(self):
        self.register("eve")
        file = self.world.folder / "night.json"
        fact = {"id": "q1", "type": "night", "user_id": "eve"}
        file.write_text(json.dumps(fact))
        told = bugle("explain", file, "--config", self.world.config)
        self.assertIn(
            f"quiet hours {NIGHT['from']}-{NIGHT['to']} UTC: an event of now is suppressed",
            told.stdout, told.stderr)
        self.assertIn("suppressed: quiet_hours", told.stdout)
        self.assertEqual(self.outcomes([fact]), {"q1": [("suppressed", "quiet_hours")]})

    def test_two_replicas_share_caps_and_quotas(self):
        users = [f"user-{n}" for n in range(24)]
        self.register(*users)
        name, port = "replica-2", harness.free_port()
        file = self.world.folder / f"{name}.yaml"
        file.write_text(harness.yaml({
            **self.world.settings, "admin": {"listen": f"127.0.0.1:{port}"},
            "kafka": {**self.world.settings["kafka"], "instance": name}}) + "\n")
        replica = harness.Process(
            [program(), "run", "--config", file], self.world.folder / f"{name}.log")
        self.addCleanup(replica.stop)

        def is_shared():
            counts, own = [], self.world.admin_port
            for number in (own, port):
                self.world.admin_port = number
                lines = self.world.get("/metrics")[1].splitlines()
                counts += [
                    float(line.split()[-1]) for line in lines
                    if line.startswith("bugle_assigned_partitions")]
            self.world.admin_port = own
            return len(counts) == 2 and all(counts)

        wait_until(is_shared, 90, lambda: f"two replicas at work\n{replica.tail()}")
        noise = [
            {"id": f"noise-{n}", "type": "noise", "user_id": users[n % 24], "source": "noisy"}
            for n in range(2 * QUOTA)]
        offers = [
            {"id": f"offer-{n}", "type": "offer", "user_id": users[n % 24], "source": "shop"}
            for n in range(24 * (CAP + 1))]
        found = self.outcomes(noise + offers)
        counts = collections.Counter(
            (id.split("-")[0], *outcome) for id, all in found.items() for outcome in all)
        self.assertEqual(counts, {
            ("noise", "accepted", None): QUOTA, ("noise", "suppressed", "over_quota"): QUOTA,
            ("offer", "accepted", None): 24 * CAP, ("offer", "suppressed", "over_cap"): 24,
        })
        mine = [r for r in self.world.results() if r["event_id"] in found]
        self.assertEqual(len({r["replica"] for r in mine}), 2, "both have worked")
        self.assertEqual(len(mine), len(found))
        told = json.loads(bugle("why", users[0], "--config", self.world.config, "--json").stdout)
        self.assertEqual(told["caps"], [
            {"name": "caps.preferences.offers", "cap": f"{CAP}/1d", "used": CAP}])
        self.assertEqual(replica.stop(30), 0, replica.tail())
