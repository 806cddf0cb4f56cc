"""Redis goes away while events flow, and comes back: the process lives on and says that it cannot
work, look-ups wait instead of finding nobody, and afterwards every device has what it was sent."""

import collections
import random
import signal

import harness
from harness import device, event, wait_until

DEVICES = 300
USERS = 150
BATCH = 300  # events published before, during and after
LOOKS = 3  # while it is away
# Seconds, generous: what is held is that it happens at all, on a machine with much else to do.
NOTICED, SETTLED = 60, 180


class Away(harness.WorldTest):
    # Answers take a while, so that pushes are under way when Redis goes.
    faults = harness.latency(5, 40)

    def setUp(self):
        self.seed = harness.seed()
        generator = random.Random(self.seed)
        name = self.id().rsplit(".", 1)[1]
        self.addCleanup(self.bring_redis_back)
        # Users of this test alone: both tests work in one world.
        self.users = [f"{name}-{n}" for n in range(USERS)]
        devices = [
            device(generator, self.users[n % USERS], f"{name}-phone-{n}",
                   ("apns", "fcm", "sandbox")[n % 3]) for n in range(DEVICES)]
        self.installs = collections.defaultdict(set)
        for one in devices:
            self.installs[one.user].add(one.install)
        self.world.register(devices)
        self.world.wait_settled(60)
        self.letters_before = self.world.kafka.count(harness.DEAD_LETTERS)
        self.published = {}

    def bring_redis_back(self):
        """Whatever failed: the next test and the end of the world need a Redis that answers."""
        if self.world.redis.process.running():
            self.world.redis.process.signal(signal.SIGCONT)
        else:
            self.world.redis.process = self.new_redis()

    def new_redis(self):
        """An empty one at the port of the one that was killed."""
        redis = self.world.redis
        process = harness.Process(
            ["redis-server", "--port", redis.port, "--bind", "127.0.0.1", "--save", "",
             "--appendonly", "no", "--dir", self.world.folder],
            self.world.folder / "redis.log")
        wait_until(lambda: harness.listening(redis.port), harness.START_TIMEOUT, "redis-server")
        return process

    def publish(self, phase):
        users = [self.users[n % USERS] for n in range(BATCH)]
        events = [event(f"{phase}-{n}-{user}", user) for n, user in enumerate(users)]
        self.published |= {e["id"]: e["user_id"] for e in events}
        self.world.publish(events)

    def results(self):
        return [r for r in self.world.results() if r["event_id"] in self.published]

    def assert_alive(self):
        """What is away is not mended by a restart, so nobody may be told to restart the process."""
        answer = wait_until(
            lambda: next((said for said in [self.world.get("/healthz")] if said[0]), None), 60,
            lambda: f"any answer of the admin listener\n{self.world.tail()}")
        self.assertEqual(answer[0], 200, f"{answer[1]}\n{self.world.tail()}")

    def await_not_ready(self):
        """The process says that it cannot work, and that it is for Redis."""
        answer = [None]

        def noticed():
            self.assert_alive()
            answer[0] = self.world.get("/readyz")
            return answer[0][0] == 503 and "Redis" in answer[0][1]

        wait_until(
            noticed, NOTICED, lambda: f"503, SEED={self.seed}: {answer}\n{self.world.tail()}")

    def lose_redis(self, lose):
        """Redis goes while events are under way, and more of them come while it is away."""
        world = self.world
        self.publish("before")
        wait_until(
            lambda: self.results(), 60, lambda: f"a first result, SEED={self.seed}\n{world.tail()}")
        lose()
        self.await_not_ready()
        ends = world.kafka.ends(harness.EVENTS)
        self.publish("during")
        # What was looked up before may still end. Of the rest nothing may move whenever one looks,
        # so there is no moment to wait for.
        for _ in range(LOOKS):
            self.assert_alive()
            self.assertNotEqual(world.get("/readyz")[0], 200, world.tail())
            committed = world.kafka.committed()
            passed = {p: (o, ends[p]) for p, o in committed.items() if o > ends[p]}
            self.assertEqual(passed, {}, f"committed without a look-up, SEED={self.seed}")
            early = [r for r in self.results() if r["event_id"].startswith("during-")]
            self.assertEqual(early[:3], [], f"results without a look-up, SEED={self.seed}")
        self.assertFalse(world.kafka.is_settled())

    def check_all_arrived(self):
        world = self.world
        world.wait_ready()
        self.publish("after")
        world.wait_settled(SETTLED)
        sent = collections.Counter(map(harness.message_id, world.gateways.journal()))
        found = collections.defaultdict(list)
        for result in self.results():
            # A device that was pushed twice is one request more than its result tells.
            self.assertLessEqual(sent[result["message_id"]], result["attempts"], result)
            found[result["event_id"]].append((result["install_id"], result["outcome"]))
        wrong = [
            (id, found[id]) for id, user in self.published.items()
            if sorted(found[id], key=str) != sorted((i, "accepted") for i in self.installs[user])]
        # A `no_devices` would be here too, and so would a result that is there twice.
        self.assertEqual(wrong[:3], [], f"{len(wrong)} of {len(self.published)}, SEED={self.seed}")
        self.assertEqual(world.kafka.count(harness.DEAD_LETTERS), self.letters_before)

    def test_one_that_hangs(self):
        self.lose_redis(lambda: self.world.redis.process.signal(signal.SIGSTOP))
        self.world.redis.process.signal(signal.SIGCONT)
        self.check_all_arrived()

    def test_one_that_is_killed_and_comes_back_empty(self):
        self.lose_redis(self.world.redis.process.kill)
        self.world.redis.process = self.new_redis()
        self.check_all_arrived()
