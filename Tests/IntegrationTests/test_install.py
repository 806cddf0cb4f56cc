"""What the scripts do on machines that lack something: other programs stand in for the system's,
in a PATH of their own."""

import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

from contract import ROOT

INSTALLED = ["librdkafka-dev", "zlib1g-dev"]
# Says of a package what `dpkg-query -W -f=… NAME` would.
QUERY = f"""case "${{@: -1}}" in {'|'.join(INSTALLED)}) printf installed ;; *) exit 1 ;; esac"""


class Install(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        self.calls = self.folder / "calls"
        self.calls.touch()
        for name in ("env", "bash", "cat"):
            (self.folder / name).symlink_to(shutil.which(name))
        self.stub("dpkg-query", QUERY)
        # Where another user may read it.
        shutil.copy(ROOT / "deploy/packages.sh", self.folder)

    def stub(self, name, body):
        file = self.folder / name
        file.write_text(f"#!{shutil.which('bash')}\n{body}\n")
        file.chmod(0o755)

    def noting(self, name):
        """A program that notes how it was called, and runs what it is to run."""
        self.stub(name, f'echo "{name} $*" >> {self.calls}\n'
                  + ('"$@"' if name == "sudo" else ""))

    def run_install(self, *packages, user=None):
        script = f"source {self.folder}/packages.sh && install_packages {' '.join(packages)}"
        return subprocess.run(
            [shutil.which("bash"), "-c", script], capture_output=True, text=True,
            env={"PATH": str(self.folder)}, user=user)

    def called(self):
        return self.calls.read_text().splitlines()

    def as_somebody(self):
        """Another user, who may use what is made here."""
        if os.geteuid() != 0:
            return None
        self.folder.chmod(0o755)
        self.calls.chmod(0o666)
        return 65534

    def test_what_is_missing_is_installed_and_nothing_else(self):
        self.noting("apt-get")
        self.stub("sudo", '"$@"')
        done = self.run_install("librdkafka-dev", "libnghttp2-dev", "zlib1g-dev", "pkg-config")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.called(), [
            "apt-get update -qq",
            "apt-get install -y -qq --no-install-recommends libnghttp2-dev pkg-config"])
        self.assertIn("libnghttp2-dev pkg-config", done.stderr)

    def test_nothing_is_called_where_all_is_there(self):
        self.noting("apt-get")
        done = self.run_install(*INSTALLED)
        self.assertEqual((done.returncode, done.stderr, self.called()), (0, "", []))

    def test_others_go_through_sudo(self):
        self.noting("apt-get")
        self.noting("sudo")
        done = self.run_install("pkg-config", user=self.as_somebody())
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(
            [line.split()[:2] for line in self.called()],
            [["sudo", "apt-get"], ["apt-get", "update"], ["sudo", "env"], ["apt-get", "install"]])

    def test_without_root_and_sudo_it_says_what_to_type(self):
        self.noting("apt-get")
        done = self.run_install("pkg-config", "zlib1g-dev", user=self.as_somebody())
        self.assertEqual(done.returncode, 1)
        self.assertIn("As root: apt-get update && apt-get install pkg-config\n", done.stderr)
        self.assertEqual(self.called(), [])

    def test_what_apt_refuses_is_told(self):
        self.stub("apt-get", "echo 'E: Unable to locate package' >&2; exit 100")
        self.stub("sudo", '"$@"')
        done = self.run_install("pkg-config")
        self.assertEqual(done.returncode, 1)
        self.assertIn("E: Unable to locate package", done.stderr)
        self.assertIn("could not install pkg-config", done.stderr)

    def test_a_machine_without_swift_is_told_what_to_install(self):
        for name in ("dirname", "mktemp", "rm", "sed"):
            (self.folder / name).symlink_to(shutil.which(name))
        for program in ("deploy/demo", "Tests/run"):
            done = subprocess.run(
                [shutil.which("bash"), ROOT / program], capture_output=True, text=True,
                env={"PATH": str(self.folder)})
            self.assertEqual(done.returncode, 1, program)
            self.assertIn("there is no 'swift' in PATH. Install Swift 6.3", done.stderr)
