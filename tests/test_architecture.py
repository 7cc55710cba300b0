"""The arrows between packages point one way, scripts say what they promise, modules stay small."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.store.scripts import SHARED

ROOT = Path(__file__).parents[1]
PACKAGES = ("service", "workers", "loadtest")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
SCRIPTS = sorted((ROOT / "service/store/lua").glob("*.lua"))
MOST_LINES, MOST_SCRIPT_LINES = 250, 300

# Of a package: what it must not import.
FORBIDDEN = {
    "service.policy": (
        "service.store",
        "service.api",
        "service.frontier",
        "service.dispatcher",
        "workers",
        "redis",
        "fastapi",
    ),
    "service.store": ("service.api", "service.frontier", "service.policy", "workers", "fastapi"),
    "service.frontier": ("service.api", "service.app", "workers", "fastapi"),
    "service.dispatcher": ("service.api", "service.store", "service.frontier", "fastapi"),
    "service.beliefs": ("service.api", "service.frontier", "workers", "fastapi"),
    "service.api": ("service.app", "workers", "redis"),
    "workers": ("service.api", "service.frontier", "service.app", "fastapi"),
    "service": ("tests",),
}


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports_of(path: Path) -> Iterator[str]:
    """Full names of everything a module imports, at any depth of its code."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


@pytest.mark.parametrize("package", FORBIDDEN)
def test_imports_point_one_way(package: str) -> None:
    wrong = [
        f"{name_of(path)} imports {imported}"
        for path in MODULES
        if is_within(name_of(path), package)
        for imported in imports_of(path)
        if any(is_within(imported, forbidden) for forbidden in FORBIDDEN[package])
    ]
    assert not wrong, "\n".join(wrong)


def test_the_domain_knows_only_addresses_and_errors() -> None:
    imported = {name for name in imports_of(ROOT / "service/domain.py") if is_within(name, "service")}
    allowed = ("service.address", "service.errors")
    assert all(any(is_within(name, module) for module in allowed) for name in imported)


def test_the_command_and_the_workers_start_without_the_framework() -> None:
    """It takes a second to import, and only the API needs it."""
    heavy = ("fastapi", "pydantic", "uvicorn")
    code = f"import sys, service.cli, workers.loop; print([name for name in {heavy} if name in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_only_the_store_knows_redis() -> None:
    wrong = [
        name_of(path)
        for path in MODULES
        if not is_within(name_of(path), "service.store") and not is_within(name_of(path), "loadtest")
        for imported in imports_of(path)
        if is_within(imported, "redis")
    ]
    assert not wrong


def test_modules_are_found_where_they_are_looked_for() -> None:
    names = {name_of(path) for path in MODULES}
    assert {"service.frontier", "service.store.connection", "service.policy.ranking"} <= names
    assert set(FORBIDDEN) <= names


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_says_what_it_promises(script: Path) -> None:
    lines = script.read_text().splitlines()
    if script.name in SHARED:
        assert lines[0].startswith("-- ")
        return
    assert lines[0].startswith(f"-- {script.stem}: ")
    header = []
    for line in lines:
        if not line.startswith("--"):
            break
        header.append(line)
    for word in ("Promise:", "KEYS:", "ARGV:", "Reply:"):
        assert any(line.startswith(f"-- {word}") for line in header), word


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_scans_nothing_and_runs_no_eval(script: Path) -> None:
    code = "\n".join(line.split("--")[0] for line in script.read_text().splitlines())
    called = set(re.findall(r"redis\.p?call\('(\w+)'", code))
    assert not called & {"KEYS", "SCAN", "SMEMBERS", "FLUSHALL", "FLUSHDB", "RANDOMKEY", "EVAL"}


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_registers_the_function_of_its_name(script: Path) -> None:
    names = re.findall(r"^register\('(\w+)'", script.read_text(), re.MULTILINE)
    assert names == ([] if script.name in SHARED else [script.stem])


def test_every_module_says_what_it_is_for() -> None:
    silent = [name_of(path) for path in MODULES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert not silent


@pytest.mark.parametrize(
    ("paths", "most"),
    [(MODULES, MOST_LINES), (SCRIPTS, MOST_SCRIPT_LINES)],
    ids=["modules", "scripts"],
)
def test_files_stay_small(paths: list[Path], most: int) -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in paths}
    long = {name: lines for name, lines in lengths.items() if lines > most}
    assert not long, f"more than {most} lines: {long}"
