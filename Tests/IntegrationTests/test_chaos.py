"""A few seeds of Tests/chaos, short ones: that the promises hold while everything breaks, and that
the harness itself still runs. The seeds are fixed: what fails here can be run again."""

import unittest

from chaos_run import run_seed

SEEDS = (20261204, 20261211)
MINUTES = 0.15  # of damage


class Chaos(unittest.TestCase):
    def test_nothing_is_lost_doubled_or_sent_to_a_former_owner(self):
        for seed in SEEDS:
            with self.subTest(seed=seed):
                plan, verdict, error, _ = run_seed(seed, MINUTES)
                again = f"Tests/chaos --seed {seed} --minutes {MINUTES}: {plan}"
                self.assertIsNone(error, again)
                self.assertEqual(verdict.problems, [], again)
                self.assertGreater(verdict.events, 200)
                self.assertGreater(verdict.targets, verdict.events)
