"""The first errors that a new user makes: one clear line each, and an exit code that a script can
use (1: it failed, 2: the command line was wrong)."""

import json
import os
import pathlib
import random
import re
import shutil
import subprocess
import tempfile
import unittest

import harness
from harness import EVENTS, bugle, event


def lines(text):
    return [line for line in text.splitlines() if line.strip()]


class CommandLine(unittest.TestCase):
    """What needs no server."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bugle-test-"))
        self.addCleanup(shutil.rmtree, self.folder)

    def assert_one_line(self, done, code, *words):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        said = lines(done.stderr)
        self.assertEqual(len(said), 1, done.stderr)
        for word in words:
            self.assertRegex(said[0], re.compile(word, re.IGNORECASE))

    def test_help_is_everywhere(self):
        for command in ([], ["run"], ["demo"], ["dev"], ["simulate"], ["check"], ["validate"],
                        ["send"], ["tail"], ["topics"]):
            with self.subTest(command=command):
                done = bugle(*command, "--help")
                self.assertEqual(done.returncode, 0, done.stderr)
                self.assertIn("bugle", done.stdout)

    def test_an_unknown_command_is_wrong_usage(self):
        done = bugle("vaildate")
        self.assertEqual(done.returncode, 2)
        self.assertIn("validate", done.stderr)

    def test_an_unknown_option_is_wrong_usage(self):
        done = bugle("run", "--confg", "x")
        self.assertEqual(done.returncode, 2)
        self.assertIn("--confg", done.stderr)

    def test_options_in_front_of_the_command_are_told_their_place(self):
        self.assert_one_line(
            bugle("--config", "x.yaml", "check"), 2, "--config: options follow the command")

    def test_the_version_is_a_command_too(self):
        self.assertEqual(bugle("version").stdout, bugle("--version").stdout)
        self.assertRegex(bugle("version").stdout, r"^bugle \d+\.\d+\.\d+ with librdkafka ")

    def test_the_environment_names_the_configuration(self):
        with_variable = {**os.environ, "BUGLE_CONFIG": str(self.folder / "no.yaml")}
        done = subprocess.run(
            [harness.program(), "check"], capture_output=True, text=True, env=with_variable,
            timeout=60)
        self.assert_one_line(done, 1, r"no\.yaml")

    def test_a_configuration_that_nobody_names_is_asked_for(self):
        without = {name: value for name, value in os.environ.items() if name != "BUGLE_CONFIG"}
        for command in ("check", "status", "run"):
            done = subprocess.run(
                [harness.program(), command], capture_output=True, text=True, env=without,
                timeout=60)
            self.assertEqual(done.returncode, 2)
            self.assertRegex(done.stderr, r"say --config FILE, or set BUGLE_CONFIG")

    def test_a_missing_configuration_is_named(self):
        self.assert_one_line(
            bugle("check", "--config", self.folder / "no.yaml"), 1, r"no\.yaml")

    def test_bad_json_names_the_file_and_the_place(self):
        file = self.folder / "event.json"
        file.write_text("{\"type\": \"order.shipped\",\n \"user_id\": }\n")
        # The brace where a value should be: line 2, column 13.
        self.assert_one_line(bugle("validate", file), 1, r"event\.json:2:13: ", "not JSON")

    def test_bad_json_from_a_pipe_is_told_with_its_place(self):
        done = bugle("validate", "-", stdin="{\"type\": order.shipped}\n")
        self.assert_one_line(done, 1, r"standard input:1:10: ", "not JSON")

    def test_an_event_without_a_user_is_refused(self):
        file = self.folder / "event.json"
        file.write_text("{\"type\": \"order.shipped\", \"notification\": {\"title\": \"t\"}}")
        self.assert_one_line(bugle("validate", file), 1, "user_id")

    def test_a_good_event_is_fine(self):
        file = self.folder / "event.json"
        file.write_text(
            "{\"type\": \"order.shipped\", \"user_id\": 1, \"notification\": {\"title\": \"t\"}}")
        done = bugle("validate", file)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_what_is_wrong_with_an_event_is_told_to_machines_too(self):
        file = self.folder / "event.json"
        file.write_text("{\"type\": \"t\", \"user_id\": 1, \"notification\": {\"title\": 5}}")
        done = bugle("validate", file, "--json")
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertEqual(json.loads(done.stdout), {
            "valid": False, "code": "invalid_content",
            "reason": "notification.title must be a string"})
        file.write_text("{\"type\": \"t\", \"user_id\": 1, \"notifcation\": {\"title\": \"t\"}}")
        told = json.loads(bugle("validate", file, "--json").stdout)
        self.assertTrue(told["valid"])
        self.assertEqual(
            told["warnings"], ["notifcation is not known and is ignored; did you mean notification?"])
        said = bugle("validate", file)
        self.assertIn("warning: notifcation is not known", said.stderr)
        self.assertIn("not known here: say --config FILE", said.stderr)

    def test_a_pattern_that_is_none_holds_nothing_back_unnoticed(self):
        for command in (["pause", "--type", "chat*"], ["skip", "--older-than", "1h", "--type", "*x"]):
            done = bugle(*command, "--config", self.folder / "no.yaml")
            self.assertEqual(done.returncode, 2, done.stderr)
            self.assertIn("a star stands alone or behind the last dot", done.stderr)


class Configuration(harness.WorldTest):
    """What needs a configuration that is otherwise right."""

    def changed(self, change):
        """A copy of the configuration, changed as text."""
        file = self.world.folder / f"{self.id().rsplit('.', 1)[1]}.yaml"
        file.write_text(change(self.world.config.read_text()))
        return file

    def assert_one_line(self, done, code, *words):
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        said = [line for line in lines(done.stdout + done.stderr) if all(
            re.search(word, line, re.IGNORECASE) for word in words)]
        self.assertEqual(len(said), 1, done.stdout + done.stderr)
        self.assertLess(len(lines(done.stderr)), 5, done.stderr)

    def assert_one_error(self, done, *words):
        """One line tells the whole error: nothing else that is said is one."""
        self.assert_one_line(done, 1, *words)
        # What `check` finds it lists among what is right; what ends a command is on stderr.
        told = [line for line in lines(done.stdout) if line.startswith("error")]
        self.assertEqual(len(told + lines(done.stderr)), 1, done.stdout + done.stderr)

    def test_the_configuration_is_right(self):
        for options in ([], ["--online"]):
            done = bugle("check", "--config", self.world.config, *options)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    def test_an_unknown_key_names_the_nearest_known_one_and_its_line(self):
        file = self.changed(lambda text: text.replace("brokers:", "brokrs:"))
        line = next(
            n for n, text in enumerate(file.read_text().splitlines(), 1) if "brokrs" in text)
        for command in ("check", "run"):
            with self.subTest(command=command):
                self.assert_one_error(
                    bugle(command, "--config", file), rf":{line}: kafka\.brokrs: unknown key",
                    "did you mean \"brokers\"")

    def test_an_unknown_key_that_may_be_left_out_is_one_line(self):
        file = self.changed(lambda text: text.replace("lanes: 2", "lnes: 2"))
        line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "lnes" in text)
        for command in ("check", "run"):
            with self.subTest(command=command):
                self.assert_one_error(
                    bugle(command, "--config", file), rf"{re.escape(str(file))}:{line}: ",
                    "lnes: unknown key", "did you mean \"lanes\"")

    def test_a_fault_outside_the_routes_hides_none_inside(self):
        file = self.changed(
            lambda text: text.replace("lanes: 2", "lanes: many\nroutes: {a.b: {tilte: x}}"))
        told = bugle("check", "--config", file)
        self.assertEqual(told.returncode, 1)
        self.assertIn("lanes: expected ", told.stderr)
        self.assertRegex(told.stderr, r"routes\.a\.b\.tilte: unknown key; did you mean \"title\"")
        machine = bugle("check", "--config", file, "--json")
        self.assertEqual((machine.returncode, machine.stderr), (1, ""))
        found = json.loads(machine.stdout)
        self.assertFalse(found["ok"])
        self.assertEqual({f["level"] for f in found["findings"]}, {"error"})
        self.assertEqual(
            [f["text"] for f in found["findings"]],
            [line.removeprefix("bugle: ") for line in lines(told.stderr)])

    def test_a_misspelt_type_has_no_route(self):
        config = self.changed(lambda text: text.replace(
            "lanes: 2", "lanes: 2\nroutes: {order.shipped: {title: \"{{payload.order}}\", ttl: 1h}}"))
        file = self.world.folder / "event.json"
        file.write_text(
            "{\"type\": \"order.shiped\", \"user_id\": 1, \"payload\": {\"order\": \"A\"}}")
        for command in (["validate"], ["send", "--yes"], ["explain"]):
            with self.subTest(command=command):
                done = bugle(*command, file, "--config", config)
                self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
                self.assertIn("no_route", done.stderr)
                self.assertIn("the nearest is order.shipped", done.stderr)
        file.write_text(file.read_text().replace("shiped", "shipped"))
        done = bugle("validate", file, "--config", config)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("by the route order.shipped", done.stdout)

    def test_a_value_of_the_wrong_type_is_named(self):
        file = self.changed(lambda text: text.replace("lanes: 2", "lanes: many"))
        self.assert_one_error(
            bugle("check", "--config", file), "lanes: expected ", "whole number from 1 to 64")

    def test_a_missing_key_file_is_named(self):
        file = self.changed(lambda text: text.replace("AuthKey.p8", "Missing.p8"))
        for command in ("check", "run"):
            with self.subTest(command=command):
                self.assert_one_error(
                    bugle(command, "--config", file), r":\d+: apps\.shop\.apns\.key_file: ",
                    r"Missing\.p8: No such file")

    def test_a_key_file_that_is_no_key_is_named(self):
        (self.world.folder / "Broken.p8").write_text("this is no key\n")
        file = self.changed(lambda text: text.replace("AuthKey.p8", "Broken.p8"))
        for command in ("check", "run"):
            with self.subTest(command=command):
                self.assert_one_error(
                    bugle(command, "--config", file), r"apps\.shop\.apns\.key_file: ",
                    r"Broken\.p8", "not PEM", "give the whole file")

    def test_a_key_file_of_another_service_is_told_with_the_one_to_take(self):
        file = self.changed(lambda text: text.replace("AuthKey.p8", "service-account.json"))
        self.assert_one_error(
            bugle("check", "--config", file), r"apps\.shop\.apns\.key_file: ",
            r"service-account\.json", r"a \.p8 file from Apple")

    def test_a_service_account_that_is_PEM_is_told_so(self):
        file = self.changed(lambda text: text.replace("service-account.json", "AuthKey.p8"))
        self.assert_one_error(
            bugle("check", "--config", file), r"apps\.shop\.fcm\.service_account_file: ",
            r"AuthKey\.p8: this is PEM; a service account is JSON")

    def test_a_dead_letter_topic_that_is_read_is_refused(self):
        file = self.changed(lambda text: text.replace(harness.DEAD_LETTERS, harness.EVENTS))
        self.assert_one_error(
            bugle("check", "--config", file), "dead_letters", "every topic has one use")

    def test_a_broker_that_is_down_is_named(self):
        nowhere = f"127.0.0.1:{harness.free_port()}"
        file = self.changed(lambda text: text.replace(self.world.kafka.address, nowhere))
        for command in (["check", "--online"], ["topics", "apply"], ["run"]):
            with self.subTest(command=command):
                self.assert_one_error(
                    bugle(*command, "--config", file), f"no broker answers at {re.escape(nowhere)}",
                    "start it, or correct kafka\\.brokers and security\\.protocol")
        # `run` did not get as far as to claim the name of the replica that works here.
        self.assertNotIn("another process", self.world.dispatcher.log.read_text())
        self.assertEqual(self.world.get("/readyz")[0], 200)

    def test_a_redis_that_is_down_is_named(self):
        nowhere = f"127.0.0.1:{harness.free_port()}"
        file = self.changed(lambda text: text.replace(self.world.redis.address, nowhere))
        self.assert_one_error(
            bugle("check", "--online", "--config", file), re.escape(nowhere),
            "start it, or correct redis\\.address")

    def test_records_of_another_partitioner_are_noticed(self):
        self.world.register([harness.device(random.Random(6), "misrouted", "misrouted-phone")])
        self.world.kafka.publish(
            EVENTS,
            [(f"stray-{n}", event(f"stray-{n}", f"stray-{n}", source="old-php")) for n in
             range(300)],
            partitioner="consistent_random")
        self.world.wait_settled(60)
        done = bugle("check", "--online", "--config", self.world.config)
        self.assert_one_line(done, 0, "old-php", "murmur2")
