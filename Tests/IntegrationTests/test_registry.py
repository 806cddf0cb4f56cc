"""The reference registry in topics/registry: its statements on a real PostgreSQL, alone and from
several sessions at once."""

import concurrent.futures
import json
import random
import unittest

import harness
from contract import TOPICS
from harness import wait_until
from postgres import Postgres

REGISTRY = TOPICS / "registry"
SQL = (REGISTRY / "registry.sql").read_text()


def quoted(text):
    return "NULL" if text is None else "'" + str(text).replace("'", "''") + "'"


def fcm(token, **fields):
    return {"platform": "android", "gateway": "fcm", "token": token, **fields}


def apns(token, environment="production", **fields):
    return {"platform": "ios", "gateway": "apns", "environment": environment, "token": token,
            **fields}


def register(install, user, version, *addresses, app="shop"):
    return (f"SELECT push.register({quoted(app)}, {quoted(install)}, {quoted(user)}, {version}, "
            f"{quoted(json.dumps(addresses))})")


def verdict(word, install, as_of, token_hash=None, **fields):
    record = {"app": "shop", "install_id": install, "verdict": word, "reason": "Unregistered",
              "as_of": as_of, "token_hash": token_hash, **fields}
    return f"SELECT push.apply_invalidation({quoted(json.dumps(record))})"


def statement(generator):
    """A statement on few installs, users and tokens, so that several of them meet."""
    install, user = f"i{generator.randrange(6)}", f"u{generator.randrange(3)}"
    version, kind = generator.randrange(100), generator.choice(["alert", "voip"])
    return generator.choice([
        register(install, user, version, *[
            fcm(f"t{generator.randrange(6)}", kind=kind)
            for kind in generator.sample(["alert", "voip", "watch"], generator.randint(1, 3))]),
        register(install, user, version, fcm(f"t{generator.randrange(6)}", kind=kind)),
        f"SELECT push.logout('shop', '{install}', '{user}', {version})",
        f"SELECT push.unregister('shop', '{install}')",
        f"SELECT push.seen('shop', '{install}')",
        verdict("invalidate", install, 1 << 42, kind=kind),
        f"SELECT push.forget('shop', '{user}')",
    ])


class RegistryTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Postgres()
        cls.addClassCleanup(cls.server.stop)
        cls.server.run(SQL)

    def setUp(self):
        self.server.run("TRUNCATE push.installs, push.devices, push.tombstones")

    def run_sql(self, statement):
        lines = self.server.run(statement)
        return lines[-1] if lines else None

    def devices(self):
        """Install, kind, user and token of every address, in order."""
        return [
            (row["install_id"], row["kind"], row["user_id"], row["token"])
            for row in self.server.rows(
                "SELECT * FROM push.devices ORDER BY app, install_id, kind, instance")]

    def tombstones(self):
        return [
            (row["install_id"], row["reason"]) for row in self.server.rows(
                "SELECT * FROM push.tombstones ORDER BY at, install_id, reason")]

    def registered_at(self, install):
        """In milliseconds, as the index sees it."""
        return int(self.run_sql(
            "SELECT round(extract(epoch FROM registered_at) * 1000)::bigint FROM push.devices "
            f"WHERE install_id = '{install}' AND kind = 'alert'"))


class Uploads(RegistryTest):
    def test_the_same_token_again_is_a_newer_registration(self):
        self.assertEqual(self.run_sql(register("i", "ada", 1, fcm("t"))), "registered")
        self.server.run("UPDATE push.devices SET registered_at = registered_at - interval '1 h'")
        first = self.registered_at("i")
        self.run_sql(register("i", "ada", 1, fcm("t")))
        self.assertEqual(self.devices(), [("i", "alert", "ada", "t")])
        self.assertGreater(self.registered_at("i"), first)
        self.assertEqual(self.tombstones(), [])

    def test_a_new_token_replaces_the_old_one_in_place(self):
        self.run_sql(register("i", "ada", 1, fcm("t")))
        self.run_sql(register("i", "ada", 2, apns("AB01 ")))
        self.assertEqual(self.devices(), [("i", "alert", "ada", "ab01")])
        self.assertEqual(self.tombstones(), [("i", "rotated")])

    def test_a_token_moves_to_the_install_that_registers_it(self):
        for former, user in [("old", "ada"), ("zold", "ada")]:
            with self.subTest(former=former):
                self.setUp()
                self.run_sql(register(former, user, 57, fcm("t"), fcm("v", kind="voip")))
                # A clock that was ahead must not keep the token with the former install.
                self.server.run(
                    "UPDATE push.devices SET registered_at = registered_at + interval '1 min'")
                before = self.registered_at(former)
                self.run_sql(register("new", "grace", 1, fcm("t")))
                self.assertEqual(
                    sorted(self.devices()),
                    sorted([(former, "voip", user, "v"), ("new", "alert", "grace", "t")]))
                self.assertEqual(self.tombstones(), [(former, "claimed_by_other_install")])
                self.assertGreater(self.registered_at("new"), before)

    def test_another_user_takes_over_all_addresses_of_an_install(self):
        self.run_sql(register("i", "ada", 1, fcm("t"), fcm("v", kind="voip")))
        self.run_sql(register("i", "grace", 2, fcm("t")))
        self.assertEqual(
            self.devices(), [("i", "alert", "grace", "t"), ("i", "voip", "grace", "v")])

    def test_an_older_upload_changes_nothing(self):
        self.run_sql(register("i", "ada", 5, fcm("t")))
        self.assertEqual(self.run_sql(register("i", "grace", 4, fcm("u"))), "outdated")
        self.assertEqual(self.devices(), [("i", "alert", "ada", "t")])

    def test_apps_and_environments_are_apart(self):
        self.run_sql(register("i", "ada", 1, apns("ab"), apns("ab", "sandbox", kind="voip")))
        self.run_sql(register("i", "ada", 1, apns("ab"), app="web"))
        self.assertEqual(len(self.devices()), 3)

    def test_a_corrected_environment_leaves_no_twin(self):
        self.run_sql(register("i", "ada", 1, apns("ab", "sandbox")))
        self.run_sql(register("i", "ada", 2, apns("ab")))
        (row,) = self.server.rows("SELECT environment FROM push.devices")
        self.assertEqual(row["environment"], "production")
        self.assertEqual(self.tombstones(), [("i", "rotated")])

    def test_a_null_token_ends_an_address_and_others_stay(self):
        self.run_sql(register("i", "ada", 1, fcm("t"), fcm("v", kind="voip")))
        self.run_sql(register("i", "ada", 2, {"kind": "voip", "token": None}))
        self.assertEqual(self.devices(), [("i", "alert", "ada", "t")])
        self.assertEqual(self.tombstones(), [("i", "client_unregister")])

    def test_a_subscription_keeps_its_keys(self):
        keys = {"p256dh": "p", "auth": "a"}
        self.run_sql(register("b", "ada", 1, {
            "platform": "web", "gateway": "webpush", "endpoint": "https://push.example/x",
            "keys": keys, "expires_at": 1_800_000_000_123}))
        (row,) = self.server.rows("SELECT * FROM push.devices")
        self.assertEqual((row["endpoint"], row["token"], row["keys"]),
                         ("https://push.example/x", None, keys))
        self.assertTrue(row["expires_at"].startswith("2027-01-15T08:00:00.123"))

    def test_what_no_gateway_could_use_is_refused(self):
        for address in [fcm("t", environment="production"), apns("ab", "none"),
                        {"platform": "web", "gateway": "webpush", "endpoint": "https://x"}]:
            with self.subTest(address=address), self.assertRaises(AssertionError):
                self.run_sql(register("i", "ada", 1, address))
        self.assertEqual(self.devices(), [])

    def test_a_sign_of_life_is_written_once_a_day_and_is_no_registration(self):
        self.run_sql(register("i", "ada", 1, fcm("t")))
        self.server.run(
            "UPDATE push.devices SET registered_at = registered_at - interval '2 d', "
            "last_seen_at = last_seen_at - interval '2 d', state = 'suspended'")
        for _ in range(2):
            self.run_sql("SELECT push.seen('shop', 'i')")
        (row,) = self.server.rows(
            "SELECT state, age(last_seen_at) < interval '1 d' AS fresh, last_seen_at, xmin::text, "
            "registered_at < now() - interval '1 d' AS old FROM push.devices")
        self.assertEqual((row["state"], row["fresh"], row["old"]), ("suspended", True, True))
        self.run_sql("SELECT push.seen('shop', 'i')")
        (again,) = self.server.rows("SELECT xmin::text FROM push.devices")
        self.assertEqual(again["xmin"], row["xmin"], "written again within a day")


class Endings(RegistryTest):
    def test_logout_unlinks_every_address_of_the_install(self):
        self.run_sql(register("i", "ada", 1, fcm("t"), fcm("v", kind="voip")))
        self.run_sql(register("j", "ada", 1, fcm("w")))
        self.assertEqual(self.run_sql("SELECT push.logout('shop', 'i', 'ada', 2)"), "t")
        self.assertEqual(
            self.devices(),
            [("i", "alert", None, "t"), ("i", "voip", None, "v"), ("j", "alert", "ada", "w")])

    def test_a_late_logout_does_not_sign_the_next_user_out(self):
        self.run_sql(register("i", "ada", 1, fcm("t")))
        self.run_sql(register("i", "grace", 3, fcm("t")))
        self.assertEqual(self.run_sql("SELECT push.logout('shop', 'i', 'ada', 2)"), "f")
        self.assertEqual(self.run_sql("SELECT push.logout('shop', 'i', 'grace', 2)"), "f")
        self.assertEqual(self.devices(), [("i", "alert", "grace", "t")])

    def test_unregister_leaves_only_tombstones(self):
        self.run_sql(register("i", "ada", 1, fcm("t"), fcm("v", kind="voip")))
        self.run_sql("SELECT push.unregister('shop', 'i')")
        self.assertEqual(self.devices(), [])
        self.assertEqual(self.tombstones(), [("i", "client_unregister")] * 2)
        self.assertEqual(self.run_sql(register("i", "ada", 1, fcm("t"))), "registered")

    def test_a_verdict_counts_up_to_the_registration_it_was_about(self):
        for late, ends in [(-1, False), (0, True), (1, True)]:
            with self.subTest(late=late):
                self.setUp()
                self.run_sql(register("i", "ada", 1, fcm("t")))
                as_of = self.registered_at("i") + late
                self.assertEqual(
                    self.run_sql(verdict("invalidate", "i", as_of)), "t" if ends else "f")
                self.assertEqual(self.devices() == [], ends)
                self.assertEqual(self.tombstones(), [("i", "Unregistered")] if ends else [])

    def test_a_verdict_is_about_one_token_and_one_address(self):
        self.run_sql(register("i", "ada", 1, fcm("t"), fcm("v", kind="voip")))
        as_of = 1 << 42
        other = harness.hashlib.sha256(b"other").hexdigest()
        self.assertEqual(self.run_sql(verdict("invalidate", "i", as_of, other)), "f")
        self.assertEqual(self.run_sql(verdict("invalidate", "nobody", as_of)), "f")
        self.assertEqual(self.run_sql(verdict("unheard_of", "i", as_of)), "f")
        own = harness.hashlib.sha256(b"v").hexdigest()
        self.assertEqual(self.run_sql(verdict("invalidate", "i", as_of, own, kind="voip")), "t")
        self.assertEqual(self.devices(), [("i", "alert", "ada", "t")])

    def test_a_suspended_token_is_revived_by_an_upload(self):
        self.run_sql(register("i", "ada", 1, fcm("t")))
        for kind, state in [("quarantine", "quarantined"), ("release", "active"),
                            ("suspend", "suspended")]:
            self.assertEqual(self.run_sql(verdict(kind, "i", 1 << 42)), "t")
            (row,) = self.server.rows("SELECT state, state_reason FROM push.devices")
            self.assertEqual((row["state"], row["state_reason"]), (state, "Unregistered"))
        self.run_sql(register("i", "ada", 1, fcm("t")))
        (row,) = self.server.rows("SELECT state, state_reason FROM push.devices")
        self.assertEqual((row["state"], row["state_reason"]), ("active", None))

    def test_forget_leaves_nothing_of_a_user(self):
        self.run_sql(register("i", "ada", 1, fcm("t")))
        self.run_sql(register("i", "ada", 2, fcm("t2")))
        self.run_sql(register("j", "grace", 1, fcm("w")))
        self.assertEqual(self.run_sql("SELECT push.forget('shop', 'ada')"), "1")
        self.assertEqual(self.devices(), [("j", "alert", "grace", "w")])
        for table in ("installs", "devices", "tombstones"):
            self.assertEqual(self.server.rows(f"SELECT * FROM push.{table} WHERE user_id = 'ada'"), [])

    def test_tombstones_go_after_a_month(self):
        self.run_sql(register("i", "ada", 1, fcm("t")))
        self.run_sql(register("i", "ada", 2, fcm("u")))
        self.server.run("SELECT push.sweep()")
        self.assertEqual(len(self.tombstones()), 1)
        self.server.run("UPDATE push.tombstones SET at = at - interval '31 d'")
        self.server.run("SELECT push.sweep()")
        self.assertEqual(self.tombstones(), [])


class SeveralSessions(RegistryTest):
    def session(self):
        session = self.server.session()
        self.addCleanup(session.close)
        return session

    def wait_blocked(self, session):
        wait_until(lambda: self.server.run(
            "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND state = 'active' "
            f"AND pid = {session.pid}"), 30, "the other session to wait")

    def test_two_sessions_claim_one_token_at_once(self):
        claims = {"i": register("i", "ada", 1, fcm("t")), "j": register("j", "grace", 1, fcm("t"))}
        for first, second in [("i", "j"), ("j", "i")]:
            for end in ("COMMIT", "ROLLBACK"):
                with self.subTest(first=first, end=end):
                    self.setUp()
                    one, two = self.session(), self.session()
                    one.ask("BEGIN")
                    self.assertEqual(one.ask(claims[first]), ["registered"])
                    two.start(claims[second])
                    self.wait_blocked(two)
                    one.ask(end)
                    self.assertEqual(two.finish(), ["registered"])
                    (owner,) = self.devices()
                    self.assertEqual(owner[0], second, "the one that registered last")

    def test_an_upload_and_a_verdict_on_what_it_replaces(self):
        self.run_sql(register("i", "ada", 1, fcm("t")))
        as_of = self.registered_at("i")
        one, two = self.session(), self.session()
        one.ask("BEGIN")
        one.ask(register("i", "ada", 2, fcm("t")))
        two.start(verdict("invalidate", "i", as_of))
        self.wait_blocked(two)
        one.ask("COMMIT")
        self.assertEqual(two.finish(), ["f"], "registered anew meanwhile")
        self.assertEqual(self.devices(), [("i", "alert", "ada", "t")])

    def test_many_sessions_keep_the_invariants(self):
        seed = harness.seed()
        scripts = [self.script(random.Random(seed + number)) for number in range(50)]
        with concurrent.futures.ThreadPoolExecutor(len(scripts)) as pool:
            answers = [line for lines in pool.map(self.answers, scripts) for line in lines]
        self.assertEqual([a for a in answers if a.startswith("ERROR")], [], f"seed {seed}")
        self.assertGreater(answers.count("registered"), 50, f"seed {seed}")
        twice = self.server.rows(
            "SELECT token_hash FROM push.devices GROUP BY app, gateway, environment, token_hash "
            "HAVING count(*) > 1")
        self.assertEqual(twice, [], f"seed {seed}: a token with two owners")
        foreign = self.server.rows(
            "SELECT * FROM push.devices d JOIN push.installs i USING (app, install_id) "
            "WHERE d.user_id IS DISTINCT FROM i.user_id")
        self.assertEqual(foreign, [], f"seed {seed}: an address of another user than its install")

    def script(self, generator):
        return ";\n".join(statement(generator) for _ in range(60))

    def answers(self, script):
        session = self.server.session()
        try:
            return session.ask(script)
        finally:
            session.close()


class Connectors(RegistryTest):
    """The connector configurations name what is there."""

    def test_the_registry_s_connector_fits_its_schema(self):
        config = json.loads((REGISTRY / "connector.json").read_text())["config"]
        table = config["table.include.list"]
        (row,) = self.server.rows(
            f"SELECT relreplident FROM pg_class WHERE oid = '{table}'::regclass")
        self.assertEqual(row["relreplident"], "f", "deletes need the whole row")
        published = self.server.rows(
            "SELECT * FROM pg_publication_tables "
            f"WHERE pubname = '{config['publication.name']}'")
        self.assertEqual([f"{r['schemaname']}.{r['tablename']}" for r in published], [table])
        columns = {row["attname"] for row in self.server.rows(
            f"SELECT attname FROM pg_attribute WHERE attrelid = '{table}'::regclass")}
        for name in config["column.exclude.list"].split(","):
            self.assertIn(name.removeprefix(table + "."), columns)
        fields = json.loads((TOPICS / "push.devices.schema.json").read_text())["properties"]
        self.assertEqual(set(fields) - columns, {"v"}, "a field without a column")

    def test_both_connectors_write_where_bugle_reads(self):
        for path in REGISTRY.glob("connector*.json"):
            with self.subTest(path=path.name):
                config = json.loads(path.read_text())["config"]
                topic = f"{config['topic.prefix']}.{config['table.include.list']}"
                self.assertRegex(topic, f"^{config['transforms.route.regex']}$")
                self.assertEqual(config["transforms.route.replacement"], "push.devices")
                self.assertEqual(config["tombstones.on.delete"], "true")


if __name__ == "__main__":
    unittest.main()
