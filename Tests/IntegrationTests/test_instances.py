"""Names of replicas: leased ones, and two processes of one name."""

import json
import signal
import unittest

import harness
from harness import World, Process, program, wait_until


class Instances(unittest.TestCase):
    def setUp(self):
        self.world = World()
        self.addCleanup(self.world.close)
        self.world.apply_topics()

    def replica(self, name, **kafka):
        """A further process with settings of its own, and its log."""
        settings = json.loads(json.dumps(self.world.settings))
        settings["kafka"].update(kafka)
        settings["admin"]["listen"] = f"127.0.0.1:{harness.free_port()}"
        config = self.world.folder / f"{name}.yaml"
        config.write_text(harness.yaml(settings) + "\n")
        process = Process(
            [program(), "run", "--config", config], self.world.folder / f"{name}.log")
        self.world.keep(process)
        return process

    def await_log(self, process, text):
        wait_until(lambda: text in process.log.read_text(), 60,
                   lambda: f"{text}: {process.tail()}")

    def test_leased_names_are_the_first_that_are_free(self):
        first = self.replica("first", instance="auto")
        self.await_log(first, '"instance":"slot-0"')
        second = self.replica("second", instance="auto")
        self.await_log(second, '"instance":"slot-1"')
        for replica in (first, second):
            self.await_log(replica, '"msg":"started"')
        # A planned stop gives the name back, a crash does not for a while.
        self.assertEqual(first.stop(40), 0, first.tail())
        third = self.replica("third", instance="auto")
        self.await_log(third, '"instance":"slot-0"')
        third.kill()
        fourth = self.replica("fourth", instance="auto")
        self.await_log(fourth, '"instance":"slot-2"')

    def test_two_of_one_name_notice_each_other(self):
        first = self.replica("first", instance="web")
        self.await_log(first, '"msg":"started"')
        second = self.replica("second", instance="web")
        self.await_log(second, "another process had this replica's name a moment ago")
        # Which of them goes on is for the broker to say, at the next transaction: test_scale.
        self.await_log(first, "another process has this replica's name")
        self.assertTrue(second.running())
        second.signal(signal.SIGTERM)


if __name__ == "__main__":
    unittest.main()
