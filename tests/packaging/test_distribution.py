"""The wheel and the sdist: what they contain, whether they install, and what type checkers see of them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
import tarfile
import tomllib
import venv
import zipfile
from pathlib import Path

import pytest

import streamops

pytest.importorskip("build")

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
PROJECT = Path(__file__).parent / "user_project"
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
EXTRAS = sorted(set(SETTINGS["optional-dependencies"]) - {"dev", "test"})


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
    return subprocess.run(command, cwd=cwd, env=environ, capture_output=True, text=True)


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist, and the wheel that is built from the sdist."""
    folder = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "-o", folder, ROOT, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    (sdist,), (wheel,) = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


@pytest.fixture(scope="module")
def installed(built: tuple[Path, Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the wheel, and the packages of this environment instead of downloads."""
    folder = tmp_path_factory.mktemp("user") / "venv"
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    done = run(python, "-m", "pip", "install", "--no-deps", "--no-index", built[1], cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    # Behind its own packages, so that the wheel comes first.
    own = next(folder.glob("lib/python*/site-packages"))
    (own / "others.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return python


def test_the_wheel_contains_the_library_and_nothing_else(built: tuple[Path, Path]) -> None:
    with zipfile.ZipFile(built[1]) as wheel:
        names = set(wheel.namelist())
        (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
        text = wheel.read(metadata).decode()
        (entries,) = (name for name in names if name.endswith("/entry_points.txt"))
        assert "streamops = streamops.testing.plugin" in wheel.read(entries).decode()
    modules = {path.relative_to(ROOT).as_posix() for path in (ROOT / "streamops").rglob("*.py")}
    found = {name for name in names if ".dist-info/" not in name}
    assert found == modules | {"streamops/py.typed", "streamops/observe/grafana.json"}
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert f"Version: {streamops.__version__}\n" in text
    extras = re.findall(r"^Provides-Extra: (\S+)$", text, re.MULTILINE)
    assert set(extras) == {*EXTRAS, "dev", "test"}


def test_the_sdist_has_the_sources_and_nothing_that_a_build_leaves(
    built: tuple[Path, Path],
) -> None:
    with tarfile.open(built[0]) as sdist:
        names = {name.partition("/")[2] for name in sdist.getnames()}
    assert {"pyproject.toml", "README.md", "LICENSE", "CHANGELOG.md", "streamops/py.typed"} <= names
    unwanted = re.compile(r"(^|/)(\.venv|build|out|spark-warehouse|__pycache__|\.git)(/|$)|\.pyc$")
    assert [name for name in sorted(names) if unwanted.search(name)] == []


@pytest.mark.parametrize("extra", ["", *EXTRAS])
def test_the_wheel_can_be_installed_with_each_extra(
    built: tuple[Path, Path], tmp_path: Path, extra: str
) -> None:
    wanted = f"{built[1]}[{extra}]" if extra else str(built[1])
    command = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report"]
    report = tmp_path / "report.json"
    done = run(sys.executable, "-m", "pip", *command, report, wanted, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    names = {
        re.sub(r"[-_.]+", "-", item["metadata"]["name"]).lower()
        for item in json.loads(report.read_text())["install"]
    }
    requirements = SETTINGS["dependencies"] + SETTINGS["optional-dependencies"].get(extra, [])
    needed = {re.split(r"[\[<>=]", requirement)[0].lower() for requirement in requirements}
    assert needed <= names


def test_an_installed_wheel_runs_a_test_of_a_user(installed: Path, tmp_path: Path) -> None:
    project = tmp_path / "test_page_views.py"
    project.write_text((PROJECT / "page_views.py").read_text())
    done = run(installed, "-m", "pytest", "-q", "-p", "no:cacheprovider", project, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout
    found = run(installed, "-c", "import streamops; print(streamops.__file__)", cwd=tmp_path)
    assert str(installed.parents[1]) in found.stdout


def test_a_project_of_a_user_passes_mypy_strict(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "page_views.py").write_text((PROJECT / "page_views.py").read_text())
    done = mypy(installed, tmp_path, "page_views.py")
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_project_of_a_user_passes_pyright_basic(installed: Path, tmp_path: Path) -> None:
    (tmp_path / "page_views.py").write_text((PROJECT / "page_views.py").read_text())
    done = pyright(installed, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


def test_type_checkers_find_each_mistake_of_a_user(installed: Path, tmp_path: Path) -> None:
    text = (PROJECT / "mistakes.py.txt").read_text()
    (tmp_path / "mistakes.py").write_text(text)
    wrong = {
        number
        for number, line in enumerate(text.splitlines(), 1)
        if line.startswith(("windows.", "agg."))
    }
    found = mypy(installed, tmp_path, "mistakes.py").stdout
    assert {
        int(number) for number in re.findall(r"^mistakes\.py:(\d+): error", found, re.M)
    } == wrong
    report = json.loads(pyright(installed, tmp_path, "--outputjson").stdout)
    lines = {item["range"]["start"]["line"] + 1 for item in report["generalDiagnostics"]}
    assert lines >= wrong


def mypy(python: Path, folder: Path, name: str) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, "-m", "mypy", "--strict", "--config-file", os.devnull)
    return run(*command, "--python-executable", python, name, cwd=folder)


def pyright(python: Path, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    settings = {"typeCheckingMode": "basic", "include": ["."]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    return run(sys.executable, "-m", "pyright", "--pythonpath", python, *options, cwd=folder)
