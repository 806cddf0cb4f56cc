"""The files that carry Bugle to other machines, judged without a container engine or a cluster:
what they name exists, what belongs together fits, schemas accept them."""

import copy
import json
import math
import os
import pathlib
import re
import shlex
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
GUIDE = DEPLOY / "kubernetes/README.md"
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

    def test_the_program_that_is_installed_is_stripped_and_works(self):
        """What the build stage does after the build, with the program that is tested."""
        (build,) = [v for v in self.values("RUN") if "swift build" in v]
        rest = build.split("&&", 1)[1]
        (self.folder / ".build/release").mkdir(parents=True)
        (self.folder / ".build/release/bugle").symlink_to(harness.program())
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", rest.replace("/out/", f"{self.folder}/out/")],
            cwd=self.folder, capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)
        program = self.folder / "out/bugle"
        self.assertEqual(program.stat().st_mode & 0o777, 0o755)
        sections = subprocess.run(
            ["readelf", "--wide", "--sections", program], capture_output=True, text=True, check=True)
        self.assertIn(" .text ", sections.stdout)
        self.assertNotIn(" .symtab ", sections.stdout)
        self.keys()
        (self.folder / "bugle.yaml").write_text(harness.yaml({
            "kafka": {"brokers": "localhost:9092"},
            "apps": {"shop": {"fcm": {"service_account_file": "service-account.json"}}}}) + "\n")
        for path in [self.folder, *self.folder.rglob("*")]:
            if not path.is_symlink():
                path.chmod(0o755)
        identity = {"user": NOBODY, "group": NOBODY} if os.geteuid() == 0 else {}
        for words in (["version"], ["check"]):
            done = subprocess.run(
                [program, *words], capture_output=True, text=True, cwd="/", timeout=60,
                env={"BUGLE_CONFIG": str(self.folder / "bugle.yaml")}, **identity)
            self.assertEqual(done.returncode, 0, f"{words}: {done.stdout}{done.stderr}")

    def test_the_user_of_the_image_can_be_made(self):
        (run,) = self.values("RUN", self.run_steps)
        commands = [shlex.split(part) for part in run.split("&&")]
        commands = [words for words in commands if words[0] in ("groupadd", "useradd")]
        etc = self.folder / "etc"
        etc.mkdir()
        for name in ["passwd", "group", "shadow", "gshadow"]:
            (etc / name).write_text("")
        as_root = [] if os.geteuid() == 0 else ["unshare", "--map-root-user"]
        for words in commands:
            done = subprocess.run(
                [*as_root, words[0], "--prefix", self.folder, *words[1:]], capture_output=True,
                text=True, timeout=60, env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin"})
            self.assertEqual(done.returncode, 0, done.stderr)
        (line,) = (etc / "passwd").read_text().splitlines()
        name, _, user, group, _, home, shell = line.split(":")
        self.assertEqual((int(user), int(group)), (NOBODY, NOBODY))
        self.assertEqual((home, shell), ("/nonexistent", "/usr/sbin/nologin"))


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
    """A strategic merge, as far as our patches go: lists of things with names merge by name, and what
    is null goes."""
    result = copy.deepcopy(base)
    for key, value in patch.items():
        old = result.get(key)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(old, dict):
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
        made = {
            "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generated["name"]},
            "data": {name: (folder / name).read_text() for name in generated["files"]}}
        old = [d for d in found if (d["kind"], d["metadata"]["name"]) == ("ConfigMap", generated["name"])]
        assert len(old) == (generated.get("behavior") == "replace"), generated
        found = [d for d in found if d not in old] + [made]
    for patch in settings.get("patches", []):
        (change,) = documents(folder / patch["path"])
        (index,) = [
            i for i, d in enumerate(found)
            if (d["kind"], d["metadata"]["name"]) == (change["kind"], change["metadata"]["name"])]
        found[index] = merged(found[index], change)
    for image in settings.get("images", []):
        for resource in found:
            for container in pod(resource).get("containers", []):
                if container["image"].split(":")[0] == image["name"]:
                    container["image"] = f"{image.get('newName', image['name'])}:{image['newTag']}"
    if "namespace" in settings:
        for resource in found:
            if resource["kind"] != "Namespace":
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
        self.assertEqual(len(ours), 7)
        self.assertEqual(self.one("Namespace")["metadata"]["name"], self.one("Service")["metadata"]["namespace"])
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
        for address in [settings["kafka"]["brokers"], settings["redis"]["address"]]:
            self.assertIn(int(address.split(":")[1]), self.ports("egress"))

    def test_the_configuration_is_one(self):
        self.keys()
        (self.folder / "redis-password").write_text("secret")
        self.check(
            BASE / "bugle.yaml", {"/etc/bugle/secrets/": f"{self.folder}/"}, POD_NAME="bugle-0")

    def ports(self, direction):
        return {p["port"] for rule in self.one("NetworkPolicy")["spec"][direction] for p in rule["ports"]}

    def test_every_port_of_the_configuration_is_open_and_in_the_guide(self):
        reading = "".join(p.read_text() for p in (ROOT / "Sources/Config").glob("*.swift"))
        defaults = {int(port) for port in re.findall(
            r"(?:port|defaultPort)(?:: UInt16)?(?::| =) (\d+)\b", reading)} - {0}
        # None of them escapes the pattern.
        self.assertLessEqual({443, 2195, 2196, 4318, 6379, 9092, 9464}, defaults)
        self.assertEqual(self.ports("ingress"), {9464})
        self.assertLessEqual(defaults - {9464} | {53, 2197}, self.ports("egress"))
        table = "\n".join(l for l in GUIDE.read_text().splitlines() if l.startswith("| "))
        for port in self.ports("egress") | self.ports("ingress"):
            self.assertRegex(table, rf"\b{port}\b")
        # Settings that hold an address, by the fields of the configuration that keep it.
        fields = re.findall(r"public var (\w+): \[?(?:HostPort|Endpoint)\b", reading)
        settings = {
            "admin": "admin.listen", "addresses": "redis.address", "address": "egress.proxy.address",
            "production": "endpoints.production", "sandbox": ".sandbox", "channels": ".channels`",
            "channelsSandbox": ".channels_sandbox", "endpoint": ".fcm.endpoint",
            "tokenEndpoint": ".token_endpoint", "collector": "tracing.endpoint",
            "authority": ".expo.endpoint"}
        self.assertEqual(set(fields), set(settings))
        for setting in [*settings.values(), "kafka.brokers", "webpush.allowed_hosts"]:
            self.assertIn(setting, table)

    def test_every_file_is_yaml_and_every_kustomization_leads_somewhere(self):
        folders = set()
        for path in (DEPLOY / "kubernetes").rglob("*.yaml"):
            self.assertTrue(documents(path), path)
            folders.add(path.parent)
        for folder in folders:
            if (folder / "kustomization.yaml").exists():
                self.assertTrue(built(folder))

    def test_the_guide_names_files_that_are_there(self):
        named = set(re.findall(r"(?<![\w.])deploy/[\w./-]+\w", GUIDE.read_text()))
        self.assertGreater(len(named), 6)
        for name in named:
            if "/overlays/mine" not in name:
                self.assertTrue((ROOT / name).exists(), name)
        for link in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", GUIDE.read_text()):
            self.assertTrue((GUIDE.parent / link).exists(), link)

    def test_the_overlay_of_the_guide_is_one(self):
        tree = self.folder / "kubernetes"
        shutil.copytree(DEPLOY / "kubernetes", tree)
        mine = tree / "overlays/mine"
        mine.mkdir()
        (block,) = re.findall(r"mine/kustomization.yaml <<'YAML'\n(.*?)\nYAML\n", GUIDE.read_text(), re.S)
        (mine / "kustomization.yaml").write_text(block)
        (mine / "bugle.yaml").write_text((BASE / "bugle.yaml").read_text() + "\n# Mine.\n")
        self.resources = built(mine)
        for resource in self.resources:
            if resource["kind"] not in ("ServiceMonitor", "ScaledObject"):
                kubernetes_validate.validate(resource, KUBERNETES, strict=True)
        (container,) = pod(self.one("StatefulSet"))["containers"]
        self.assertEqual(container["image"], "registry.example.com/bugle:0.1.0")
        self.assertTrue(self.one("ConfigMap")["data"]["bugle.yaml"].endswith("# Mine.\n"))

    def test_the_job_for_topics_fits_the_replicas(self):
        (job,) = documents(DEPLOY / "kubernetes/topics.yaml")
        kubernetes_validate.validate(job, KUBERNETES, strict=True)
        spec, replicas = pod(job), pod(self.one("StatefulSet"))
        (container,), (replica,) = spec["containers"], replicas["containers"]
        self.assertEqual(container["args"][:2], ["topics", "apply"])
        self.assertEqual(container["args"][2:], replica["args"][1:])
        for part in ["volumeMounts", "securityContext"]:
            self.assertEqual(container[part], replica[part])
        self.assertEqual(spec["securityContext"], replicas["securityContext"])
        self.assertEqual({v["name"] for v in spec["volumes"]}, {v["name"] for v in replicas["volumes"]})
        self.assertEqual({e["name"] for e in container["env"]}, {e["name"] for e in replica["env"]})
        # What the guide makes, and what it puts in for the image.
        self.assertIn("create configmap bugle-topics --from-file=", GUIDE.read_text())
        self.assertEqual(spec["volumes"][0]["configMap"]["name"], "bugle-topics")
        self.assertIn(f's|image: {container["image"]}|', GUIDE.read_text())
        labels = job["spec"]["template"]["metadata"]["labels"]
        self.assertFalse(self.one("Service")["spec"]["selector"].items() <= labels.items())

    def test_the_guide_makes_a_resource_of_the_rules(self):
        (command,) = re.findall(r"^\{\n.*?\n\} \| kubectl[^\n]*$", GUIDE.read_text(), re.S | re.M)
        done = subprocess.run(
            ["bash", "-euc", "kubectl() { cat; }\n" + command], cwd=ROOT, capture_output=True,
            text=True, check=True)
        made = yaml.safe_load(done.stdout)
        self.assertEqual((made["kind"], made["metadata"]["name"]), ("PrometheusRule", "bugle"))
        self.assertEqual(made["spec"], yaml.safe_load((DEPLOY / "prometheus/rules.yaml").read_text()))

    def scaled(self, name):
        (scaled,) = documents(PRODUCTION / f"scaledobject-{name}.yaml")
        return scaled["spec"]

    def test_a_number_of_replicas_is_the_autoscalers_alone(self):
        self.assertNotIn("replicas", self.one("StatefulSet")["spec"])
        (base,) = [r for r in built(BASE) if r["kind"] == "StatefulSet"]
        self.assertGreaterEqual(base["spec"]["replicas"], 2)

    def test_scaling_aims_at_the_replicas_within_bounds(self):
        for name in ["drain", "lag"]:
            with self.subTest(name=name):
                spec = self.scaled(name)
                target = self.one("StatefulSet")
                self.assertEqual(
                    (spec["scaleTargetRef"]["kind"], spec["scaleTargetRef"]["name"]),
                    (target["kind"], target["metadata"]["name"]))
                self.assertGreaterEqual(spec["minReplicaCount"], 2)
                self.assertLessEqual(spec["maxReplicaCount"], harness.PARTITIONS)
                self.assertEqual(harness.PARTITIONS % spec["maxReplicaCount"], 0)
                fallback = spec["fallback"]["replicas"]
                self.assertTrue(spec["minReplicaCount"] <= fallback <= spec["maxReplicaCount"])
                drain = seconds(yaml.safe_load((BASE / "bugle.yaml").read_text())["drain_deadline"])
                behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
                self.assertGreaterEqual(
                    behavior["scaleDown"]["stabilizationWindowSeconds"], 2 * drain)
                # It would promise what KEDA does for the step to 0 only.
                self.assertNotIn("cooldownPeriod", spec)
                for trigger in spec["triggers"]:
                    # KEDA reads strings, and before 2.18 falls back for averages only.
                    self.assertTrue(all(isinstance(v, str) for v in trigger["metadata"].values()))
                    self.assertEqual(trigger["metricType"], "AverageValue")
        (trigger,) = self.scaled("lag")["triggers"]
        self.assertEqual(trigger["metadata"]["topic"], harness.EVENTS)
        self.assertGreaterEqual(
            int(trigger["metadata"]["activationLagThreshold"]), harness.PARTITIONS)

    def test_scaling_has_fields_that_keda_knows_and_makes_an_autoscaler(self):
        for name in ["drain", "lag"]:
            spec = self.scaled(name)
            self.assertLessEqual(set(spec), {
                "scaleTargetRef", "pollingInterval", "cooldownPeriod", "initialCooldownPeriod",
                "idleReplicaCount", "minReplicaCount", "maxReplicaCount", "fallback", "advanced",
                "triggers"})
            self.assertLessEqual(set(spec["fallback"]), {"failureThreshold", "replicas", "behavior"})
            self.assertLessEqual(
                set(spec["advanced"]), {"restoreToOriginalReplicaCount", "horizontalPodAutoscalerConfig"})
            for trigger in spec["triggers"]:
                self.assertLessEqual(set(trigger), {
                    "type", "name", "metricType", "metadata", "useCachedMetrics", "authenticationRef"})
                self.assertLessEqual(set(trigger["metadata"]), {
                    "prometheus": {
                        "serverAddress", "query", "threshold", "activationThreshold", "namespace",
                        "customHeaders", "ignoreNullValues", "queryParameters", "unsafeSsl",
                        "authModes"},
                    "kafka": {
                        "bootstrapServers", "consumerGroup", "topic", "lagThreshold",
                        "activationLagThreshold", "offsetResetPolicy", "allowIdleConsumers",
                        "scaleToZeroOnInvalidOffset", "excludePersistentLag",
                        "limitToPartitionsWithLag", "ensureEvenDistributionOfPartitions",
                        "partitionLimitation", "version", "sasl", "tls"}}[trigger["type"]])
            kubernetes_validate.validate({
                "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler",
                "metadata": {"name": "keda-hpa-bugle"},
                "spec": {
                    "scaleTargetRef": spec["scaleTargetRef"],
                    "minReplicas": spec["minReplicaCount"], "maxReplicas": spec["maxReplicaCount"],
                    "behavior": spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"],
                    "metrics": [{
                        "type": "External",
                        "external": {
                            "metric": {"name": f"s{number}"},
                            "target": {
                                "type": trigger["metricType"],
                                "averageValue": trigger["metadata"].get("threshold", "1")}}}
                        for number, trigger in enumerate(spec["triggers"])]}}, KUBERNETES, strict=True)

    def replicas_wanted(self, series, values):
        """What the autoscaler makes of the queries' answers to these series after ten minutes: the
        value over the threshold, rounded up. `values` are the answers, which promtool checks."""
        triggers = self.scaled("drain")["triggers"]
        self.assertEqual([t["name"] for t in triggers], list(values))
        test = {
            "evaluation_interval": "1m",
            "tests": [{
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": f"{start}+{step}x20"} for name, start, step in series],
                "promql_expr_test": [{
                    "expr": trigger["metadata"]["query"], "eval_time": "10m",
                    "exp_samples": [] if values[trigger["name"]] is None else [
                        {"labels": "{}", "value": values[trigger["name"]]}]}
                    for trigger in triggers]}]}
        path = self.folder / "queries.yaml"
        path.write_text(json.dumps(test))
        done = subprocess.run(
            ["promtool", "test", "rules", path], capture_output=True, text=True, timeout=60)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return max(
            (math.ceil(values[t["name"]] / float(t["metadata"]["threshold"])) for t in triggers
             if values[t["name"]] is not None), default=None)

    def series(self, job, replicas, drain, busy):
        """Of replicas with two lanes, busy for some seconds of a minute; the first has a backlog."""
        for number in range(replicas):
            labels = f'job="{job}",instance="{job}-{number}"'
            yield f"bugle_build_info{{{labels}}}", 1, 0
            yield f'bugle_seconds_to_drain{{{labels},bottleneck="hot_key"}}', 9000, 0
            yield (f'bugle_seconds_to_drain{{{labels},bottleneck="replicas"}}',
                   drain if number == 0 else 0, 0)
            for lane in range(2):
                yield f'bugle_lane_busy_seconds_total{{{labels},lane="{lane}"}}', 0, busy

    def test_the_queries_ask_for_what_helps_and_keep_what_carries_the_load(self):
        other = list(self.series("bugle-staging", 4, 5000, 60))
        # Two minutes of backlog: twice as many.
        found = self.replicas_wanted(
            [*self.series("bugle", 3, 120, 30), *other], {"backlog": 360, "load": 150})
        self.assertEqual(found, 6)
        # The backlog is gone and the load is not.
        found = self.replicas_wanted(
            [*self.series("bugle", 6, 0, 30), *other], {"backlog": 0, "load": 300})
        self.assertEqual(found, 5)
        # Nearly nothing to do.
        found = self.replicas_wanted(
            [*self.series("bugle", 6, 0, 3), *other], {"backlog": 0, "load": 30})
        self.assertEqual(found, 1)
        # No metrics of ours are no answer, and that is a fault for KEDA.
        self.assertIsNone(self.replicas_wanted(other, {"backlog": None, "load": None}))
        for trigger in self.scaled("drain")["triggers"]:
            self.assertEqual(trigger["metadata"]["ignoreNullValues"], "false")
            for name in re.findall(r"bugle_\w+", trigger["metadata"]["query"]):
                sources = "".join(
                    (ROOT / f"Sources/{file}.swift").read_text() for file in
                    ["Pipeline/ProcessMetrics", "Bugle/Run/ProcessStatistics"])
                self.assertIn(f'"{name}"', sources)


class Systemd(Temporary):
    def test_its_head_makes_what_it_names(self):
        text = (DEPLOY / "systemd/bugle.service").read_text()
        commands = re.findall(r"^#   (.*)$", text, re.M)
        made = {c.split()[-1] for c in commands if c.startswith("install ")}
        for named in re.findall(r"^(?:Documentation=file:|ExecStart=)(\S+)", text, re.M):
            self.assertIn(named, made)
        for command in commands:
            for path in re.findall(r"\b(?:deploy/\S+|README\.md)", command):
                if not command.split()[-1].endswith(path):
                    self.assertTrue((ROOT / path).exists(), path)
        # Without topics the service ends as soon as it has begun.
        order = [i for word in ("topics apply", "systemctl enable")
                 for i, command in enumerate(commands) if word in command]
        self.assertEqual(len(order), 2, commands)
        self.assertEqual(order, sorted(order))
        self.assertIn(
            re.search(r"^Environment=BUGLE_CONFIG=(\S+)", text, re.M)[1], commands[order[0]])

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
