"""Nothing is lost: 20,000 events flow while the process is killed at random moments.

An independent reader of the topics then finds an outcome for every target of every event; with
transactional commits it finds each exactly once. It finds nothing for a device that is not the
user's, and no token given up without its gateway's word."""

import collections
import hashlib
import random

import harness
from chaos_judge import message_id
from contract import errors
from harness import DEAD_LETTERS, DEVICES, EVENTS, INVALIDATIONS, event, wait_until

COUNT = 20_000
USERS = 2_000
KILLS = 6
POISON = ["not json", "{\"id\":\"x\"}", "[]", "{\"type\":\"t\"}", None]
POISON_EVERY = 400
SETTLE_TIMEOUT = 300  # seconds, for what is left after the last kill


def token_hash(device):
    return hashlib.sha256(device["token"].encode()).hexdigest()


class Kill(harness.WorldTest):
    commit = "plain"
    # What was not committed when the process ended is looked up and done once more.
    looks_up_again = True
    faults = harness.dead_tokens("dead", latency_ms=(1, 20))
    # A static member takes its partitions back at once. This broker also never forgets a dynamic
    # member that went without a word, which real brokers do after the session time-out.
    kafka_properties = {"group.instance.id": "bugle-0"}

    def test_every_target_has_an_outcome_although_the_process_was_killed(self):
        seed = harness.seed()
        print(f"test_kill: SEED={seed}", flush=True)
        with self.subTest(seed=seed):
            self.run_with(random.Random(seed))

    def run_with(self, generator):
        world, kafka = self.world, self.world.kafka
        alive, dead = collections.defaultdict(set), collections.defaultdict(set)
        devices = self.make_devices(generator, alive, dead)
        world.register(devices)
        events_before = self.committed_events()

        users = self.publish(generator)
        moments = sorted(generator.uniform(0.03, 0.9) for _ in range(KILLS))
        for moment in moments:
            wanted = events_before + int(moment * len(users))
            wait_until(
                lambda: self.committed_events() >= wanted, 120,
                lambda: f"{wanted} events, there are {self.committed_events()}\n{world.tail()}")
            # Not always just after a commit: anywhere between two of them.
            harness.pause(generator.uniform(0, 0.4))
            world.kill()
            world.start()
        world.wait_settled(SETTLE_TIMEOUT)
        # A gateway that answers late on a busy machine has its events parked: they come back.
        wait_until(lambda: kafka.is_settled(harness.WAITING), SETTLE_TIMEOUT,
                   lambda: f"what waits to come back\n{world.tail()}")
        self.assertEqual(world.terminate(), 0, world.tail())

        self.registered = {record.key: record.json for record in kafka.read(DEVICES)}
        self.journal = [entry for entry in world.gateways.journal() if entry["message_id"]]
        self.check_ledger(users, alive, dead)
        self.check_pushes()
        self.check_invalidations(dead)
        self.check_dead_letters()
        self.check_once()
        self.assertTrue(kafka.is_settled())

    def committed_events(self):
        return sum(max(0, offset) for offset in self.world.kafka.committed().values())

    def check_once(self):
        """With plain commits a reader counts distinct results."""

    def make_devices(self, generator, alive, dead):
        devices = []
        for number in range(USERS):
            user = f"user-{number}"
            for index in range(generator.choice([0, 1, 1, 2, 2, 3, 4])):
                install = f"install-{number}-{index}"
                kind = generator.choice(["apns", "apns", "fcm", "fcm", "sandbox"])
                is_dead = generator.random() < 0.02
                devices.append(harness.device(
                    generator, user, install, kind, mark="dead" if is_dead else None))
                (dead if is_dead else alive)[user].add(install)
        return devices

    def publish(self, generator):
        """Publishes everything at once; returns the user of each event id."""
        users, records = {}, []
        for number in range(COUNT):
            id, user = f"kill-{number}", f"user-{generator.randrange(USERS)}"
            users[id] = user
            records.append((user, event(id, user)))
            if number % POISON_EVERY == 0:
                records.append((user, POISON[number // POISON_EVERY % len(POISON)]))
        self.world.kafka.publish(EVENTS, records)
        return users

    def check_ledger(self, users, alive, dead):
        """Every event has an outcome for each of its targets, and nobody else's."""
        positions = {}
        for record in self.world.kafka.read(EVENTS):
            if record.value and record.value.startswith("{\"v\""):
                positions[record.position] = record.json["id"]
        grouped = harness.by_event(self.world.results())

        missing, strangers, wrong = [], [], []
        outcomes, names = collections.defaultdict(set), {}
        for position, id in positions.items():
            if id not in users:
                continue
            user, results = users[id], grouped.get(position, [])
            installs = {result["install_id"] for result in results}
            wanted = alive[user] or ({None} if not dead[user] else set())
            if not results or not wanted <= installs:
                missing.append((id, sorted(map(str, wanted - installs))))
            strangers += [
                (id, i) for i in installs if i is not None and i not in alive[user] | dead[user]]
            for result in results:
                target = (position, result["install_id"])
                if names.setdefault(result["result_id"], target) != target:
                    wrong.append(("one result_id, two targets", target))
                outcomes[target].add((result["result_id"], result["outcome"]))
                expected = self.expected_outcomes(result["install_id"], user, alive)
                if result["event_id"] != id or result["outcome"] not in expected:
                    wrong.append((id, result["install_id"], result["outcome"]))
                if result["install_id"] is not None and not self.is_of_device(result):
                    wrong.append((id, result["install_id"], "is registered otherwise"))
            wrong += [(id, fault) for fault in self.look_up_faults(results)]
        wrong += [(target, found) for target, found in outcomes.items() if len(found) != 1]
        self.assertEqual(len([id for id in positions.values() if id in users]), COUNT)
        self.assertEqual(missing[:5], [], f"{len(missing)} events lack outcomes")
        self.assertEqual(strangers[:5], [], "results for devices of other users")
        self.assertEqual(wrong[:5], [], f"{len(wrong)} results do not fit")

    def is_of_device(self, result):
        """Whether a result names the device as it was registered."""
        device = self.registered.get(f"shop/{result['install_id']}")
        names = ["user_id", "gateway", "environment", "platform"]
        return (device is not None and all(result[name] == device[name] for name in names)
                and result["token_hash"] == token_hash(device)[:8])

    def look_up_faults(self, results):
        """What does not fit among an event's results: those of one look-up agree on how many
        targets there are and number them, and the last look-up has an outcome for each. One before
        it ended with its process, wherever it was."""
        look_ups = collections.defaultdict(list)
        for result in results:
            look_ups[result["fanout_at"]].append(result)
        for found in look_ups.values():
            counts = {result["targets"] for result in found}
            places = {(result["target_index"], result["install_id"]) for result in found}
            numbers, installs = ({place[part] for place in places} for part in (0, 1))
            if len(counts) != 1:
                yield f"its results say that there are {sorted(counts)} targets"
            elif not len(numbers) == len(installs) == len(places):
                yield f"its targets are numbered {sorted(map(str, places))}"
            elif max(numbers) >= min(counts):
                yield f"target {max(numbers)} of {min(counts)}"
        if len(look_ups) > 1 and not self.looks_up_again:
            yield f"it was looked up at {sorted(look_ups)}"
        if look_ups:
            last = look_ups[max(look_ups)]
            missing = set(range(last[0]["targets"])) - {found["target_index"] for found in last}
            if missing:
                yield f"its targets {sorted(missing)} of {last[0]['targets']} have no outcome"

    def check_pushes(self):
        """No gateway got a push for a device that is not its user's."""
        devices = collections.defaultdict(list)
        for key, device in self.registered.items():
            devices[device["user_id"]].append((key, device["token"]))
        expected = set()
        for record in self.world.kafka.read(EVENTS):
            if (record.value or "").startswith("{\"v\""):
                for key, token in devices[record.json["user_id"]]:
                    expected.add((message_id(record.json["id"], key), token))
        strangers = {(entry["message_id"], entry["token"]) for entry in self.journal} - expected
        self.assertEqual(list(strangers)[:5], [], f"{len(strangers)} pushes are nobody's")

    def check_invalidations(self, dead):
        """A token is given up after its gateway called it dead and not otherwise, and then it is."""
        refused = {}
        for entry in self.journal:
            if entry["status"] in (404, 410):
                refused.setdefault(entry["token"], entry["at"])
        mortal = {install for installs in dead.values() for install in installs}
        wrong, given_up = [], set()
        for record in self.world.kafka.read(INVALIDATIONS):
            verdict, device = harness.checked("push.invalidations", record).json, None
            if verdict["install_id"] in mortal:
                device = self.registered.get(record.key)
            if device is None:
                wrong.append((record.key, "no dead device"))
                continue
            given_up.add(verdict["install_id"])
            if (verdict["verdict"], verdict["origin"]) != ("invalidate", "gateway"):
                wrong.append((record.key, verdict["verdict"], verdict["origin"]))
            if verdict["token"] != device["token"] or verdict["token_hash"] != token_hash(device):
                wrong.append((record.key, "another token"))
            said = refused.get(device["token"])
            if said is None or said > record.timestamp:
                wrong.append((record.key, f"at {record.timestamp}, its gateway said so at {said}"))
            if verdict["as_of"] < device["registered_at"]:
                wrong.append((record.key, "registered after the verdict"))
        self.assertEqual(wrong[:5], [], f"{len(wrong)} invalidations do not fit")
        invalid = {
            result["install_id"] for result in self.world.results()
            if result["outcome"] == "token_invalid"}
        self.assertEqual(invalid - given_up, set(), "found dead, and not given up")
        self.assertTrue(given_up, "no token was dead: the test shows nothing")

    def expected_outcomes(self, install, user, alive):
        if install is None:
            return {"no_devices"}
        # A target that waits while another event's push finds its token dead is not sent to.
        return {"accepted"} if install in alive[user] else {"token_invalid", "suppressed"}

    def check_dead_letters(self):
        """Every poison record has a dead letter, and every dead letter is a poison record's."""
        poison = {
            record.position for record in self.world.kafka.read(EVENTS)
            if not (record.value or "").startswith("{\"v\"")}
        found = set()
        for letter in self.world.dead_letters():
            self.assertEqual(errors(DEAD_LETTERS, letter.headers), [])
            found.add((
                letter.headers["bugle-original-topic"],
                int(letter.headers["bugle-original-partition"]),
                int(letter.headers["bugle-original-offset"])))
        self.assertEqual(found, poison)


class KillTransactional(Kill):
    """A reader of committed records never sees an outcome twice, whatever crashes."""

    commit = "transactional"
    looks_up_again = False

    def check_once(self):
        seen = collections.Counter(result["result_id"] for result in self.world.results())
        twice = [name for name, times in seen.items() if times > 1]
        self.assertEqual(twice[:5], [], f"{len(twice)} results are there twice")
        letters = collections.Counter(
            tuple(letter.headers[f"bugle-original-{part}"] for part in ("partition", "offset"))
            for letter in self.world.dead_letters())
        twice = [position for position, times in letters.items() if times > 1]
        self.assertEqual(twice, [], "dead letters are there twice")
