"""Runs the integration tests and reports each one as it ends.

    python3 Tests/IntegrationTests/run.py [--counts FILE] [--failures FILE] [--skip PATTERN]... \
        [PATTERN...]

A pattern is part of a test's name, for instance `test_loop` or `test_kill`; what matches one of
--skip is left out. BUGLE names the program (default: the release build, else the debug build), SEED
repeats a run. KEEP=1 keeps the folders of failed tests.
"""

import argparse
import pathlib
import sys
import time
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent


class Report(unittest.TestResult):
    """One line per test, the whole story of a failure at once."""

    def __init__(self):
        super().__init__()
        self.passed = 0
        self.started = 0.0
        self.broken = {}

    def startTest(self, test):
        super().startTest(test)
        self.started = time.monotonic()

    def addSuccess(self, test):
        super().addSuccess(test)
        if test.id() not in self.broken:
            self.passed += 1
            print(f"ok    {test.id()} ({time.monotonic() - self.started:.1f} s)", flush=True)

    def addError(self, test, err):
        super().addError(test, err)
        self.fail(test, self._exc_info_to_string(err, test))

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self.fail(test, self._exc_info_to_string(err, test))

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is not None:
            self.fail(test, f"{subtest}\n{self._exc_info_to_string(err, test)}")

    def fail(self, test, text):
        self.broken.setdefault(test.id(), text)
        print(f"FAIL  {test.id()}\n{text}", flush=True)


def matching(suite, patterns, skipped):
    for item in suite:
        if isinstance(item, unittest.TestSuite):
            yield from matching(item, patterns, skipped)
        elif ((not patterns or any(pattern in item.id() for pattern in patterns))
                and not any(pattern in item.id() for pattern in skipped)):
            yield item


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--counts", help="write 'passed failed' into this file")
    parser.add_argument("--failures", help="add the failed tests' names and last words to this file")
    parser.add_argument("--skip", metavar="PATTERN", action="append", default=[],
                        help="leave these out; may be given more than once")
    parser.add_argument("patterns", nargs="*")
    options = parser.parse_args()

    sys.path.insert(0, str(FOLDER))
    found = unittest.TestLoader().discover(str(FOLDER), pattern="test_*.py")
    suite = unittest.TestSuite(matching(found, options.patterns, options.skip))
    if suite.countTestCases() == 0:
        sys.exit("no test matches")
    report = Report()
    suite.run(report)

    failed = len(report.broken)
    if options.counts:
        pathlib.Path(options.counts).write_text(f"{report.passed} {failed}\n")
    if options.failures:
        with open(options.failures, "a") as file:
            for name, text in report.broken.items():
                file.write(f"{name}: {text.strip().splitlines()[-1][:400]}\n")
    print(f"Integration tests: {report.passed} ok, {failed} not ok")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
