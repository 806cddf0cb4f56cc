"""The files that carry Bugle to other machines, judged without a container engine or a cluster:
what they name exists, what belongs together fits, schemas accept them."""

import copy
import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

import kubernetes_validate
import yaml

import harness
from contract import ROOT

DEPLOY = ROOT / "deploy"
BASE = DEPLOY / "kubernetes/base"
PRODUCTION = DEPLOY / "kubernetes/overlays/production"
KUBERNETES = "1.34"
NOBODY = 65532
GRACE = 10  # seconds that whoever stops Bugle grants beyond drain_deadline, at least


def seconds(text):
    number, unit = re.fullmatch(r"(\d+)(s|m)", text).groups()
    return int(number) * {"s": 1, "m": 60}[unit]


def documents(path):
    return [d for d in yaml.safe_load_all(path.read_text()) if d]


class Temporary(unittest.TestCase):
    """Tests with a folder, and with the simulated gateways' keys in it."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bugle-packaging-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def keys(self):
        gateways = harness.Gateways(self.folder)
        gateways.stop()

    def check(self, configuration, replaced, **environment):
        """`bugle check` of a packaged configuration, with its paths on this machine."""
        text = configuration.read_text()
        for old, new in replaced.items():
            self.assertIn(old, text)
            text = text.replace(old, new)
        path = self.folder / "bugle.yaml"
        path.write_text(text)
        done = subprocess.run(
            [harness.program(), "check", "--config", path], capture_output=True, text=True,
            env={**os.environ, **environment}, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Image(Temporary):
    """The steps of the container file, gone through on this machine."""

    def setUp(self):
        super().setUp()
        text = (DEPLOY / "container/Containerfile").read_text()
        text = re.sub(r"^\s*#.*\n", "", text, flags=re.M).replace("\\\n", " ")
        self.steps = [line.split(None, 1) for line in text.splitlines() if line.strip()]
        self.run_steps = self.steps[
            max(i for i, step in enumerate(self.steps) if step[0] == "FROM"):]

    def values(self, name, steps=None):
        return [value for step, value in (steps or self.steps) if step == name]

    def packages(self):
        (install,) = [v for v in self.values("RUN", self.run_steps) if "apt-get install" in v]
        words = install.split("apt-get install", 1)[1].split("&&")[0].split()
        return [word for word in words if not word.startswith("-")]

    def test_the_bases_are_exact_releases(self):
        bases = dict(value.split("=") for value in self.values("ARG"))
        self.assertEqual(set(bases), {"BUILD_BASE", "RUN_BASE"})
        for base in bases.values():
            self.assertRegex(base, r"^[a-z]+:\d+\.\d+(\.\d+)?-[a-z]+$")
        self.assertEqual(
            self.values("FROM"), ["${BUILD_BASE} AS build", "${RUN_BASE} AS run"])
        self.assertIn("-slim", bases["RUN_BASE"])
        # The program is linked against the libraries of one release of Debian.
        self.assertIn("bookworm", bases["BUILD_BASE"])
        self.assertTrue(bases["RUN_BASE"].startswith("debian:12"))

    def test_what_is_copied_is_there(self):
        for value in self.values("COPY"):
            if value.startswith("--from="):
                stage, source = re.match(r"--from=(\S+) (\S+)", value).groups()
                self.assertEqual(stage, "build")
                self.assertTrue(any(source in run for run in self.values("RUN")))
            else:
                self.assertTrue((ROOT / value.split()[0]).exists(), value)
        manifest = (ROOT / "Package.swift").read_text()
        copied = {value.split()[0] for value in self.values("COPY")}
        for path in re.findall(r'path: "([^"/]+)', manifest):
            self.assertIn(path, copied)
        self.assertEqual(self.values("ADD"), [])

    def test_the_build_is_the_one_that_is_tested(self):
        (build,) = [v for v in self.values("RUN") if "swift build" in v]
        tests = " ".join((ROOT / "Tests/run").read_text().replace("\\\n", " ").split())
        command = " ".join(build.split("&&")[0].split())
        self.assertIn(command, tests)

    def test_the_packages_hold_every_library(self):
        listed = subprocess.run(
            ["ldd", harness.program()], capture_output=True, text=True, check=True).stdout
        # Swift's own are linked statically in the image, and only there.
        libraries = {
            os.path.realpath(p) for p in re.findall(r"=> (/\S+)", listed)
            if "/lib/swift/" not in p}
        self.assertGreater(len(libraries), 10)
        wanted, closed = self.packages() + ["libc6"], set()
        while wanted:
            package = wanted.pop()
            if package in closed:
                continue
            closed.add(package)
            shown = subprocess.run(
                ["dpkg-query", "-W", "-f=${Depends},${Pre-Depends}", package],
                capture_output=True, text=True)
            if shown.returncode == 0:
                wanted += [
                    re.split(r"[ (:|]", name.strip())[0]
                    for name in shown.stdout.split(",") if name.strip()]
        held = set()
        for package in closed:
            files = subprocess.run(["dpkg-query", "-L", package], capture_output=True, text=True)
            held |= {os.path.realpath(path) for path in files.stdout.split()}
        self.assertEqual(libraries - held, set())

    def test_nothing_needs_a_home_or_root(self):
        self.assertEqual(self.values("USER", self.run_steps), [f"{NOBODY}:{NOBODY}"])
        names = [step for step, _ in self.run_steps]
        self.assertGreater(names.index("USER"), max(
            i for i, name in enumerate(names) if name == "RUN"))
        entry = json.loads(self.values("ENTRYPOINT")[0])
        copied = [v.split()[-1] for v in self.values("COPY", self.run_steps)]
        self.assertEqual(entry, copied)
        self.assertEqual(json.loads(self.values("CMD")[0])[0], "run")
        program = self.folder / "bugle"
        shutil.copy(harness.program(), program)
        self.folder.chmod(0o755)
        identity = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
        done = subprocess.run(
            [program, "--help"], capture_output=True, text=True, cwd="/", env={}, timeout=60,
            **identity)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("bugle COMMAND", done.stdout)


class Compose(Temporary):
    def setUp(self):
        super().setUp()
        self.file = yaml.safe_load((DEPLOY / "compose/compose.yaml").read_text())
        self.services = self.file["services"]

    def test_everything_named_is_there(self):
        self.assertEqual(
            set(self.services),
            {"kafka", "redis", "gateways", "topics", "bugle", "prometheus", "grafana"})
        for name, service in self.services.items():
            with self.subTest(service=name):
                self.assertRegex(service["image"], r"^[a-z/]+:v?\d+\.\d+\.\d+$")
                for on, condition in service.get("depends_on", {}).items():
                    if condition["condition"] == "service_healthy":
                        self.assertIn("healthcheck", self.services[on])
                    self.assertIn(on, self.services)
                for volume in service.get("volumes", []):
                    source = volume.split(":")[0]
                    if source.startswith("."):
                        self.assertTrue((DEPLOY / "compose" / source).exists(), source)
                    else:
                        self.assertIn(source, self.file["volumes"])
                for port in service.get("ports", []):
                    self.assertTrue(port.startswith("127.0.0.1:"), port)

    def test_ours_are_locked_down(self):
        for name in ["gateways", "topics", "bugle"]:
            service = self.services[name]
            self.assertTrue(service["read_only"])
            self.assertEqual(service["cap_drop"], ["ALL"])
            self.assertTrue(
                (DEPLOY / "compose" / service["build"]["context"]
                 / service["build"]["dockerfile"]).resolve().exists())

    def test_the_addresses_fit(self):
        settings = yaml.safe_load((DEPLOY / "compose/bugle.yaml").read_text())
        host, port = settings["kafka"]["brokers"].split(":")
        listeners = self.services["kafka"]["environment"]["KAFKA_ADVERTISED_LISTENERS"]
        self.assertIn(f"INSIDE://{host}:{port}", listeners)
        self.assertEqual(settings["redis"]["address"].split(":")[0], "redis")
        self.assertIn("7443", self.services["gateways"]["command"])
        grace = seconds(self.services["bugle"]["stop_grace_period"])
        self.assertGreaterEqual(grace, seconds(settings["drain_deadline"]) + GRACE)
        scrape = yaml.safe_load((DEPLOY / "compose/prometheus.yaml").read_text())
        (job,) = scrape["scrape_configs"]
        self.assertEqual(job["job_name"], "bugle")
        (target,) = job["static_configs"][0]["targets"]
        alias, port = target.split(":")
        self.assertIn(alias, self.services["gateways"]["networks"]["default"]["aliases"])
        self.assertEqual(settings["admin"]["listen"], f"0.0.0.0:{port}")
        self.assertEqual(self.services["bugle"]["network_mode"], "service:gateways")

    def test_the_configuration_is_one(self):
        self.keys()
        self.check(DEPLOY / "compose/bugle.yaml", {"/gateways/": f"{self.folder}/"})


def merged(base, patch):
    """A strategic merge, as far as our patches go: lists of things with names merge by name."""
    result = copy.deepcopy(base)
    for key, value in patch.items():
        old = result.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            result[key] = merged(old, value)
        elif isinstance(value, list) and value and "name" in value[0] and isinstance(old, list):
            names = {item["name"]: item for item in old}
            for item in value:
                names[item["name"]] = merged(names.get(item["name"], {}), item)
            result[key] = list(names.values())
        else:
            result[key] = value
    return result


def built(folder):
    """What `kubectl kustomize` would print."""
    settings = yaml.safe_load((folder / "kustomization.yaml").read_text())
    known = {"apiVersion", "kind", "namespace", "resources", "patches", "configMapGenerator", "images"}
    assert set(settings) <= known, set(settings) - known
    found = []
    for name in settings["resources"]:
        path = (folder / name).resolve()
        found += built(path) if path.is_dir() else documents(path)
    for generated in settings.get("configMapGenerator", []):
        found.append({
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generated["name"]},
            "data": {name: (folder / name).read_text() for name in generated["files"]}})
    for patch in settings.get("patches", []):
        (change,) = documents(folder / patch["path"])
        (index,) = [
            i for i, d in enumerate(found)
            if (d["kind"], d["metadata"]["name"]) == (change["kind"], change["metadata"]["name"])]
        found[index] = merged(found[index], change)
    for image in settings.get("images", []):
        for resource in found:
            for container in pod(resource).get("containers", []):
                if container["image"] == image["name"]:
                    container["image"] = f"{image['name']}:{image['newTag']}"
    if "namespace" in settings:
        for resource in found:
            resource["metadata"]["namespace"] = settings["namespace"]
    return found


def pod(resource):
    return resource.get("spec", {}).get("template", {}).get("spec", {})


class Kubernetes(Temporary):
    def setUp(self):
        super().setUp()
        self.resources = built(PRODUCTION)

    def one(self, kind):
        (resource,) = [r for r in self.resources if r["kind"] == kind]
        return resource

    def test_schemas_accept_base_and_overlay(self):
        ours = [r for r in self.resources if r["kind"] not in ("ServiceMonitor", "ScaledObject")]
        self.assertEqual(len(ours), 6)
        for resource in built(BASE) + ours:
            with self.subTest(kind=resource["kind"]):
                kubernetes_validate.validate(resource, KUBERNETES, strict=True)

    def test_the_validator_would_notice(self):
        broken = copy.deepcopy(self.one("StatefulSet"))
        broken["spec"]["replicas"] = "three"
        with self.assertRaises(kubernetes_validate.ValidationError):
            kubernetes_validate.validate(broken, KUBERNETES, strict=True)

    def test_selectors_select(self):
        labels = self.one("StatefulSet")["spec"]["template"]["metadata"]["labels"]
        for selector in [
                self.one("StatefulSet")["spec"]["selector"]["matchLabels"],
                self.one("Service")["spec"]["selector"],
                self.one("PodDisruptionBudget")["spec"]["selector"]["matchLabels"],
                self.one("NetworkPolicy")["spec"]["podSelector"]["matchLabels"]]:
            self.assertTrue(selector and selector.items() <= labels.items())
        monitor = self.one("ServiceMonitor")["spec"]
        service = self.one("Service")
        self.assertLessEqual(
            monitor["selector"]["matchLabels"].items(), service["metadata"]["labels"].items())
        self.assertEqual(monitor["endpoints"][0]["port"], service["spec"]["ports"][0]["name"])
        # The job that rules and dashboard ask for is the Service's name.
        self.assertEqual(service["metadata"]["name"], "bugle")
        self.assertEqual(self.one("StatefulSet")["spec"]["serviceName"], "bugle")

    def test_the_pod_is_locked_down(self):
        spec = pod(self.one("StatefulSet"))
        self.assertTrue(spec["securityContext"]["runAsNonRoot"])
        self.assertEqual(spec["securityContext"]["runAsUser"], NOBODY)
        (container,) = spec["containers"]
        self.assertEqual(container["image"], "bugle:0.1.0")
        self.assertEqual(container["securityContext"], {
            "allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]}})
        self.assertFalse(spec["automountServiceAccountToken"])
        # Nothing secret stands in a file of ours.
        self.assertNotIn("Secret", {r["kind"] for r in self.resources})

    def test_probes_do_not_restart_for_somebody_elses_fault(self):
        (container,) = pod(self.one("StatefulSet"))["containers"]
        self.assertEqual(container["livenessProbe"]["httpGet"]["path"], "/healthz")
        self.assertEqual(container["startupProbe"]["httpGet"]["path"], "/healthz")
        self.assertEqual(container["readinessProbe"]["httpGet"]["path"], "/readyz")

    def test_mounts_ports_and_grace_fit_the_configuration(self):
        settings = yaml.safe_load((BASE / "bugle.yaml").read_text())
        spec = pod(self.one("StatefulSet"))
        (container,) = spec["containers"]
        deadline = seconds(settings["drain_deadline"])
        self.assertGreaterEqual(spec["terminationGracePeriodSeconds"], deadline + GRACE)
        port = int(settings["admin"]["listen"].split(":")[1])
        self.assertEqual(container["ports"][0]["containerPort"], port)
        mounts = {m["name"]: m["mountPath"] for m in container["volumeMounts"]}
        self.assertEqual(container["args"][-1], mounts["configuration"])
        for used in re.findall(r"/etc/bugle/secrets/\S+", (BASE / "bugle.yaml").read_text()):
            self.assertTrue(used.startswith(mounts["secrets"] + "/"))
        self.assertEqual({v["name"] for v in spec["volumes"]}, set(mounts))
        self.assertEqual(
            set(re.findall(r"\$\{(\w+)\}", (BASE / "bugle.yaml").read_text())),
            {variable["name"] for variable in container["env"]})
        opened = {p["port"] for rule in self.one("NetworkPolicy")["spec"]["egress"]
                  for p in rule["ports"]}
        for address in [settings["kafka"]["brokers"], settings["redis"]["address"]]:
            self.assertIn(int(address.split(":")[1]), opened)
        self.assertIn(443, opened)

    def test_the_configuration_is_one(self):
        self.keys()
        (self.folder / "redis-password").write_text("secret")
        self.check(
            BASE / "bugle.yaml", {"/etc/bugle/secrets/": f"{self.folder}/"}, POD_NAME="bugle-0")

    def test_scaling_aims_at_the_replicas_and_at_metrics_that_exist(self):
        source = (ROOT / "Sources/Pipeline/ProcessMetrics.swift").read_text()
        for name in ["drain", "lag"]:
            with self.subTest(name=name):
                (scaled,) = documents(PRODUCTION / f"scaledobject-{name}.yaml")
                spec = scaled["spec"]
                target = self.one("StatefulSet")
                self.assertEqual(
                    (spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"]),
                    (target["kind"], target["metadata"]["name"]))
                self.assertGreaterEqual(spec["minReplicaCount"], 1)
                self.assertLessEqual(spec["maxReplicaCount"], harness.PARTITIONS)
                self.assertEqual(harness.PARTITIONS % spec["maxReplicaCount"], 0)
                drain = seconds(yaml.safe_load((BASE / "bugle.yaml").read_text())["drain_deadline"])
                behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
                self.assertGreaterEqual(
                    behavior["scaleDown"]["stabilizationWindowSeconds"], 2 * drain)
                (trigger,) = spec["triggers"]
                # KEDA reads strings.
                self.assertTrue(all(isinstance(v, str) for v in trigger["metadata"].values()))
                if name == "drain":
                    self.assertIn('bottleneck="replicas"', trigger["metadata"]["query"])
                    (metric,) = re.findall(r"bugle_\w+", trigger["metadata"]["query"])
                    self.assertIn(f'"{metric}"', source)
                else:
                    self.assertEqual(trigger["metadata"]["topic"], harness.EVENTS)
                    self.assertGreaterEqual(
                        int(trigger["metadata"]["activationLagThreshold"]), harness.PARTITIONS)


class Systemd(Temporary):
    def test_the_unit_is_one_and_its_sandbox_is_tight(self):
        text = (DEPLOY / "systemd/bugle.service").read_text()
        self.assertIn("/usr/local/bin/bugle", text)
        # The program stands elsewhere here, and `verify` looks for it.
        unit = self.folder / "bugle.service"
        unit.write_text(text.replace("/usr/local/bin/bugle", harness.program()))
        for arguments in (["verify", "--man=no"], ["security", "--offline=true", "--threshold=20"]):
            done = subprocess.run(
                ["systemd-analyze", *arguments, unit], capture_output=True, text=True, timeout=120)
            self.assertEqual(done.returncode, 0, f"{arguments}: {done.stdout}{done.stderr}")
            if arguments[0] == "verify":
                self.assertNotIn("bugle.service:", done.stdout + done.stderr)
        self.assertGreaterEqual(
            seconds(re.search(r"^TimeoutStopSec=(\S+)$", text, re.M)[1]), 20 + GRACE)
