"""The files of `deploy/`: they can be read, and name only settings, commands and metrics there are."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import redis

from loadtest.cluster import Member
from service import telemetry
from service.cli import COMMANDS
from service.embedded import EmbeddedServer
from service.settings import Settings
from service.store.connection import Server
from tests.deploy.plain_yaml import documents

DEPLOY = Path(__file__).parents[2] / "deploy"
FILES = sorted(DEPLOY.rglob("*.yaml"))
SETTINGS = {f"FRESHET_{setting.name.upper()}" for setting in fields(Settings)}
IMAGES = {"freshet", "valkey/valkey", "prom/prometheus", "grafana/grafana"}
WHERE = {"port", "cluster-port", "bind", "dir", "pidfile", "protected-mode", "unixsocket", "unixsocketperm"}
SUFFIXES = ("_bucket", "_count", "_sum")


def read(name: str) -> Any:
    (document,) = documents((DEPLOY / name).read_text())
    return document


def everything(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Every text of a document with the name of its field."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from everything(inner, key)
    elif isinstance(value, list):
        for inner in value:
            yield from everything(inner, name)
    elif value is not None:
        yield name, value


def texts(path: Path) -> list[tuple[str, str]]:
    return [pair for document in documents(path.read_text()) for pair in everything(document)]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
def test_a_file_names_only_settings_and_images_there_are(path: Path) -> None:
    named = {name for name, _ in texts(path) if name.startswith("FRESHET_")}
    assert named <= SETTINGS
    images = {value.partition(":")[0] for name, value in texts(path) if name == "image"}
    assert images <= IMAGES


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(DEPLOY)))
async def test_a_url_of_the_store_is_one_the_service_takes(path: Path) -> None:
    for name, value in texts(path):
        if name == "FRESHET_REDIS_URL":
            await Server(value).close()


def test_containers_run_commands_there_are() -> None:
    services = read("compose.yaml")["services"]
    assert {services[name]["command"] for name in ("api", "worker")} == {"serve", "work"} <= set(COMMANDS)
    for name, command in (("api", "serve"), ("worker", "work")):
        manifest = documents((DEPLOY / f"kubernetes/base/{name}.yaml").read_text())[-1]
        (container,) = manifest["spec"]["template"]["spec"]["containers"]
        assert container["args"] == [command]


def test_files_mounted_into_containers_exist() -> None:
    made_by_the_operator = {"./reader.key"}
    for name in ("compose.yaml", "compose.cluster.yaml"):
        for service in read(name)["services"].values():
            for volume in service.get("volumes", []):
                source = volume.partition(":")[0]
                if source.startswith("./") and source not in made_by_the_operator:
                    assert (DEPLOY / source).is_file(), source


def test_a_cluster_is_given_by_the_addresses_of_its_servers() -> None:
    services = read("compose.cluster.yaml")["services"]
    addresses = [
        f"{service['networks']['default']['ipv4_address']}:6379"
        for name, service in services.items()
        if name.startswith("redis")
    ]
    url = "redis+cluster://" + ",".join(addresses)
    assert {services[name]["environment"]["FRESHET_REDIS_URL"] for name in ("api", "worker")} == {url}
    assert " ".join(addresses) in services["assemble"]["command"]


def test_manifests_refer_to_files_there_are() -> None:
    folder = DEPLOY / "kubernetes/base"
    listed = read("kubernetes/base/kustomization.yaml")["resources"]
    assert sorted([*listed, "kustomization.yaml"]) == sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("overlay", ["base", "cluster"])
def test_manifests_can_be_built(overlay: str) -> None:
    kubectl = shutil.which("kubectl")
    if kubectl is None:
        pytest.skip("no kubectl on PATH")
    command = [kubectl, "kustomize", str(DEPLOY / "kubernetes" / overlay)]
    built = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    has_own_server = "kind: StatefulSet" in built
    assert has_own_server == (overlay == "base")
    assert f"FRESHET_REDIS_URL: redis{'' if has_own_server else '+cluster'}://" in built


# --- the server's settings


def lines_of(text: str) -> list[str]:
    return [line for line in map(str.strip, text.splitlines()) if line and not line.startswith("#")]


def settings_of(name: str) -> str:
    """The file without the folder of the container."""
    return (DEPLOY / name).read_text().replace("dir /data\n", "")


def test_the_server_has_the_settings_of_the_embedded_one(
    redis_server: EmbeddedServer, tmp_path: Path
) -> None:
    """The real server says what it made of the file; only where it listens and writes may differ."""
    with redis.Redis.from_url(redis_server.url) as client:
        embedded = client.config_get()
    member = Member(tmp_path / "server", settings=settings_of("redis.conf"))
    try:
        deployed = member.client.config_get()
    finally:
        member.close()
    assert {name for name in embedded if embedded[name] != deployed[name]} <= WHERE


def test_a_server_of_a_cluster_has_them_too(tmp_path: Path) -> None:
    included = "include /etc/valkey/redis.conf"
    settings = settings_of("redis-cluster.conf")
    assert included in settings
    member = Member(tmp_path / "server", settings=settings.replace(included, settings_of("redis.conf")))
    try:
        assert member.client.config_get("cluster-require-full-coverage") == {
            "cluster-require-full-coverage": "no"
        }
        assert member.ask("CLUSTER", "MYID")
    finally:
        member.close()


def test_the_server_in_kubernetes_has_the_same_file() -> None:
    manifest = documents((DEPLOY / "kubernetes/base/redis.yaml").read_text())[-1]
    assert lines_of(manifest["data"]["redis.conf"]) == lines_of((DEPLOY / "redis.conf").read_text())


# --- metrics


def exported() -> set[str]:
    """Names as a scrape shows them."""
    return {
        name
        for metric in telemetry.REGISTRY.collect()
        for name in (
            [metric.name + suffix for suffix in SUFFIXES]
            if metric.type == "histogram"
            else [f"{metric.name}_total" if metric.type == "counter" else metric.name]
        )
    }


def named_in(text: str) -> set[str]:
    return set(re.findall(r"\bfreshet_\w+", text))


def test_alerts_are_of_metrics_there_are_and_say_what_to_do() -> None:
    (group,) = read("monitoring/alerts.yaml")["groups"]
    for rule in group["rules"]:
        assert named_in(rule["expr"]) <= exported(), rule["alert"]
        assert named_in(rule["expr"]) or rule["expr"].startswith("up{")
        assert {"summary", "action"} <= rule["annotations"].keys()
    named = named_in((DEPLOY / "monitoring/alerts.yaml").read_text())
    assert {"freshet_repriced_lag_seconds", "freshet_next_pages_total"} <= named <= exported()


def test_the_dashboard_shows_metrics_there_are() -> None:
    panels = json.loads((DEPLOY / "monitoring/dashboard.json").read_text())["panels"]
    shown: set[str] = set()
    for panel in panels:
        for target in panel["targets"]:
            assert named_in(target["expr"]), panel["title"]
            shown |= named_in(target["expr"])
    assert shown <= exported()
    assert {"freshet_expected_freshness", "freshet_next_pages_total", "freshet_redis_seconds_bucket"} <= shown
    assert len({panel["id"] for panel in panels}) == len(panels)


def test_prometheus_reads_the_alerts_and_asks_the_api() -> None:
    config = read("monitoring/prometheus.yaml")
    assert config["rule_files"] == ["alerts.yaml"]
    (job,) = config["scrape_configs"]
    assert f'job="{job["job_name"]}"' in (DEPLOY / "monitoring/alerts.yaml").read_text()
    ((target,),) = (static["targets"] for static in job["static_configs"])
    assert target == "api:8080"
    assert "api" in read("compose.yaml")["services"]


def test_the_readme_names_files_there_are() -> None:
    text = (DEPLOY / "README.md").read_text()
    named = set(re.findall(r"[\w/.-]+\.(?:yaml|json|conf)", text.replace("deploy/", "")))
    assert named >= {"compose.yaml", "compose.cluster.yaml", "redis.conf", "redis-cluster.conf"}
    assert all((DEPLOY / name).is_file() for name in named), named
