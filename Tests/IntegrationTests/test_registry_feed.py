"""From a row in PostgreSQL to an address in the index: the reference registry, and the table
`device_registrations` by its mapping, through logical decoding and Debezium's change records."""

import hashlib
import json
import random
import uuid

import harness
from harness import DEVICES, event
from postgres import Changes, Postgres
from test_index import IndexTest
from test_registry import REGISTRY, SQL, fcm, quoted, register, statement

# The table as device services have it, and their three statements.
DEVICE_REGISTRATIONS = """
CREATE TYPE platform AS ENUM ('ios', 'android', 'web');
CREATE TABLE device_registrations (
    id uuid PRIMARY KEY, user_id uuid, device_fingerprint varchar(128) NOT NULL,
    platform platform NOT NULL, push_token text NOT NULL, app_version varchar(32),
    os_version varchar(32), is_active boolean NOT NULL DEFAULT true,
    created_at timestamp NOT NULL DEFAULT now(), updated_at timestamp NOT NULL DEFAULT now(),
    last_seen_at timestamp NOT NULL DEFAULT now(), tombstoned_at timestamp,
    tombstone_reason varchar(64), UNIQUE (platform, push_token));
ALTER TABLE device_registrations REPLICA IDENTITY FULL;
"""


def upload(user, fingerprint, platform, token):
    return f"""
        INSERT INTO device_registrations (id, user_id, device_fingerprint, platform, push_token)
        VALUES ('{uuid.uuid4()}', '{user}', '{fingerprint}', '{platform}', {quoted(token)})
        ON CONFLICT (platform, push_token) DO UPDATE SET
            user_id = excluded.user_id, device_fingerprint = excluded.device_fingerprint,
            is_active = true, tombstoned_at = NULL, tombstone_reason = NULL,
            updated_at = clock_timestamp(), last_seen_at = clock_timestamp()"""


def tombstone(token, reason="Unregistered"):
    return f"""
        UPDATE device_registrations SET is_active = false, tombstoned_at = now(),
            tombstone_reason = '{reason}', updated_at = clock_timestamp()
        WHERE push_token = {quoted(token)}"""


def logout(user, fingerprint):
    return f"""
        UPDATE device_registrations SET user_id = NULL, updated_at = clock_timestamp()
        WHERE user_id = '{user}' AND device_fingerprint = '{fingerprint}'"""


def token_name(token):
    return hashlib.sha256(token.encode()).hexdigest()[:8]


class FeedTest(IndexTest):
    @classmethod
    def setUpClass(cls):
        cls.server = Postgres()
        cls.addClassCleanup(cls.server.stop)
        super().setUpClass()

    def publish(self, records):
        if records:
            self.world.kafka.publish(DEVICES, records)

    def pushed_to(self, user):
        """Address and token of what may be sent to."""
        return {
            (entry["address_id"], entry["token_hash"])
            for entry in self.addresses(user).values() if entry["standing"] == "active"}


class Registry(FeedTest):
    """The reference registry."""

    connector = json.loads((REGISTRY / "connector.json").read_text())["config"]

    def owned(self):
        """By user what the registry has."""
        owned = {}
        for row in self.server.rows("SELECT * FROM push.devices WHERE user_id IS NOT NULL"):
            kind = "" if row["kind"] == "alert" else f"/{row['kind']}"
            owned.setdefault(row["user_id"], set()).add(
                (f"{row['app']}/{row['install_id']}{kind}", token_name(row["token"])))
        return owned

    def test_a_history_of_the_registry_is_the_index(self):
        seed = harness.seed()
        generator = random.Random(seed)
        table = self.connector["table.include.list"]
        excluded = [
            name.removeprefix(table + ".")
            for name in self.connector["column.exclude.list"].split(",")]
        self.server.run(SQL)
        # What is there before the connector is comes by its snapshot.
        self.server.run(";".join(statement(generator) for _ in range(30)))
        changes = Changes(
            self.server, table, ["app", "install_id", "kind", "instance"], excluded)
        self.publish(changes.snapshot())
        # A token that is stored outside of its row, and then does not change with it.
        long_token = "long:APA91b" + "".join(generator.choices(harness.TOKEN_LETTERS, k=3500))
        self.server.run(register("long", "ada", 1, fcm(long_token)))
        self.server.run(register("long", "grace", 2))
        for round_number in range(4):
            self.server.run(";".join(statement(generator) for _ in range(40)))
            records = changes.take()
            self.publish(records)
            if round_number == 0:
                placeholders = [v for _, v in records if v and "unavailable_value" in v]
                self.assertTrue(placeholders, "no large value was left out")
            self.wait_applied()
            owned = self.owned()
            for user in ("u0", "u1", "u2", "ada", "grace"):
                self.assertEqual(
                    self.pushed_to(user), owned.get(user, set()), f"seed {seed}: {user}")
        self.assertEqual(self.pushed_to("grace"), {("shop/long", token_name(long_token))})
        # Read from the start once more it is the same.
        self.world.redis.cli("FLUSHALL")
        self.command("index", "rebuild", "--yes")
        for user, addresses in self.owned().items():
            self.assertEqual(self.pushed_to(user), addresses, f"seed {seed}: {user} rebuilt")


class Mapped(FeedTest):
    """`device_registrations`, which knows no app, gateway and environment."""

    index_settings = {"debezium": {"device_registrations": {"environment": "sandbox"}}}

    def setUp(self):
        self.ada, self.grace = str(uuid.uuid4()), str(uuid.uuid4())
        self.server.run("DROP TABLE IF EXISTS device_registrations; DROP TYPE IF EXISTS platform")
        self.server.run(DEVICE_REGISTRATIONS)

    def changes(self):
        changes = Changes(
            self.server, "public.device_registrations", ["id", "device_fingerprint"])
        self.addCleanup(changes.drop)
        return changes

    def follow(self, changes, statements=""):
        if statements:
            self.server.run(statements)
        self.publish(changes.take())
        self.wait_applied()

    def tokens(self, user):
        return {token for _, token in self.pushed_to(user)}

    def test_its_statements_do_what_they_mean(self):
        changes = self.changes()
        old, new = f"old:{uuid.uuid4()}", f"new:{uuid.uuid4()}"
        phone = uuid.uuid4().hex
        self.follow(changes, upload(self.ada, phone, "android", old))
        self.assertEqual(self.tokens(self.ada), {token_name(old)})
        # A new token, then word that the old one is dead: it takes no other along.
        self.follow(changes, upload(self.ada, phone, "android", new))
        self.follow(changes, tombstone(old))
        self.assertEqual(self.tokens(self.ada), {token_name(new)})
        # Logged out; then somebody else on the same phone with the same token.
        self.follow(changes, logout(self.ada, phone))
        self.assertEqual(self.tokens(self.ada), set())
        self.follow(changes, upload(self.grace, phone, "android", new))
        self.assertEqual((self.tokens(self.ada), self.tokens(self.grace)),
                         (set(), {token_name(new)}))
        # The old token is registered again, on another phone: revived and reassigned.
        self.follow(changes, upload(self.ada, phone + "-2", "android", old))
        self.assertEqual(self.tokens(self.ada), {token_name(old)})
        self.follow(changes, f"DELETE FROM device_registrations WHERE push_token = '{old}'")
        self.assertEqual(self.tokens(self.ada), set())
        self.assertEqual(self.tokens(self.grace), {token_name(new)})

    def test_events_reach_its_devices_once(self):
        changes = self.changes()
        token, fallback = uuid.uuid4().hex * 2, f"second:APA91b{uuid.uuid4()}"
        phone = uuid.uuid4().hex
        self.follow(changes, upload(self.ada, phone, "ios", token.upper()))
        self.follow(changes, upload(self.ada, phone, "android", fallback))
        self.world.publish([event("mapped-1", self.ada)])
        self.world.wait_settled(30)
        (result,) = [r for r in self.world.results() if r["event_id"] == "mapped-1"]
        self.assertEqual(
            (result["install_id"], result["gateway"], result["environment"], result["outcome"]),
            (phone, "apns", "sandbox", "accepted"))
        obstacles = [e["obstacle"] for e in self.json("why", self.ada)["addresses"]]
        self.assertEqual(obstacles.count(None), 1)

    def test_a_snapshot_gives_a_shared_phone_to_its_last_user(self):
        phone, first, second = uuid.uuid4().hex, f"a:{uuid.uuid4()}", f"b:{uuid.uuid4()}"
        self.server.run(upload(self.ada, phone, "android", first))
        self.server.run(upload(self.grace, phone, "android", second))
        changes = self.changes()
        for snapshot in (changes.snapshot(), changes.snapshot()[::-1]):
            self.publish(snapshot)
            self.wait_applied()
            self.assertEqual(self.tokens(self.ada), set())
            self.assertEqual(self.tokens(self.grace), {token_name(first), token_name(second)})

    def test_a_row_that_cannot_be_read_is_skipped(self):
        changes = self.changes()
        good, bad = f"good:{uuid.uuid4()}", f"bad:{uuid.uuid4()}"
        before = self.skipped()
        self.server.run(upload(self.ada, "a/b", "android", bad))
        self.server.run(upload(self.ada, uuid.uuid4().hex, "web", "https://push.example/bare"))
        self.follow(changes, upload(self.ada, uuid.uuid4().hex, "android", good))
        self.assertEqual(self.tokens(self.ada), {token_name(good)})
        # At least: a bucket that is healed, or a new writer, reads records again and counts again.
        self.assertGreaterEqual(self.skipped() - before, 2)
        self.assertNotIn(bad, self.world.dispatcher.log.read_text())

    def skipped(self):
        lines = self.world.get("/metrics")[1].splitlines()
        return sum(
            int(float(line.split()[-1])) for line in lines
            if line.startswith("bugle_index_records_skipped_total"))
