"""Find problems of an environment or of a running session, and how to fix them."""

from __future__ import annotations

import importlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from typing import TYPE_CHECKING

from streamops.environment.extras import extras
from streamops.environment.java import find_java
from streamops.environment.platforms import Platform, recognise
from streamops.environment.requirements import (
    REQUIRED,
    compare_version,
    installed_version,
    requirement,
)
from streamops.environment.settings import (
    MASTER,
    PARTITIONS,
    PROVIDER,
    ROCKSDB,
    TIMEZONE,
    effective,
)
from streamops.kernel.errors import StreamopsError
from streamops.kernel.versions import (
    has_arrow_functions,
    has_python_sources,
    has_transform,
    has_views,
    state_messages_problem,
)

if TYPE_CHECKING:  # the doctor must be able to report that PySpark is missing
    from pyspark.sql import SparkSession

_WORKER_IMPORTS = "pyspark, pandas, pyarrow, numpy, streamops"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check.

    Parameters
    ----------
    name : str
        What was checked.
    ok : bool
        Whether it meets the requirements of streamops.
    found : str
        What was found.
    remedy : str
        How to fix it; empty if there is nothing to fix. If ``ok`` is true, a hint for sessions that
        ``streamops.local_session()`` does not start.
    """

    name: str
    ok: bool
    found: str
    remedy: str = ""


def examine(environ: Mapping[str, str] | None = None) -> list[Finding]:
    """Examine this environment: the platform, Python, Java, packages, extras, and the workers' interpreter.

    Parameters
    ----------
    environ : mapping, optional
        The environment; by default that of this process.

    Returns
    -------
    list of Finding
        One per check. Spark is not started.
    """
    environ = os.environ if environ is None else environ
    platform = recognise(environ)
    version = _spark_version()
    here = [_java(environ), _worker(environ)] if platform is None or not platform.serverless else []
    return [
        Finding("streamops", True, installed_version("streamops") or "not installed by pip"),
        *_platform(platform),
        _python(),
        *here[:1],
        _spark(version, platform),
        *(_package(name) for name in REQUIRED if name != "pyspark"),
        *(_features() if version else ()),
        *_extras(platform),
        *here[1:],
    ]


def diagnose(spark: SparkSession, environ: Mapping[str, str] | None = None) -> list[Finding]:
    """Examine the settings of a running session, classic or Connect. Nothing is changed.

    Parameters
    ----------
    spark : SparkSession
        The session whose version and configuration are read.
    environ : mapping, optional
        The environment of the driver; by default that of this process.

    Returns
    -------
    list of Finding
        One per setting.
    """
    environ = os.environ if environ is None else environ
    settings = {key: effective(spark, key) or "" for key in _SETTINGS}
    return [_version("Spark", "pyspark", spark.version), *_check_settings(settings, environ)]


def run_smoke_query(spark: SparkSession) -> Finding:
    """Run a small stateful query, to check that the session works.

    Parameters
    ----------
    spark : SparkSession
        The session.

    Returns
    -------
    Finding
        Whether two micro-batches of the state API that operators use gave the right counts.
    """
    from streamops.environment.smoke_query import count_in_state

    name = "stateful query"
    remedy = "fix the problems above first; then see the first error in Spark's own output"
    try:
        counts = count_in_state(spark)
    except Exception as error:  # any failure is the finding
        first = f"{type(error).__name__}: {error}".splitlines()[0]
        return Finding(name, False, first, remedy)
    if counts != {0: 10, 1: 10}:
        return Finding(name, False, f"counted {counts}, not 10 rows for each of 2 keys", remedy)
    return Finding(name, True, "counted 20 rows of 2 keys over 2 micro-batches")


def _platform(platform: Platform | None) -> Iterator[Finding]:
    if platform is None:
        yield Finding("platform", True, "no managed runtime was recognised")
        return
    name = f"{platform.name} {platform.version}".strip()
    yield Finding("platform", True, name)
    for limit, instead in platform.limits:
        yield Finding("not there", True, limit, instead)


def _python() -> Finding:
    found = f"{sys.version.split()[0]} ({sys.executable})"
    if sys.version_info < (3, 11):  # noqa: UP036  (pip would refuse it, a copied folder does not)
        return Finding("Python", False, found, "use Python 3.11 or later")
    return Finding("Python", True, found)


def _java(environ: Mapping[str, str]) -> Finding:
    try:
        java = find_java(environ)
    except StreamopsError as error:
        return Finding("Java", False, str(error.got), error.fix)
    return Finding("Java", True, f"{java.version} ({java.home}, found through {java.source})")


def _spark_version() -> str:
    """The version of the PySpark that is imported: platforms have one of which pip does not know."""
    try:
        return str(importlib.import_module("pyspark").__version__)
    except ImportError:
        return ""


def _spark(version: str, platform: Platform | None) -> Finding:
    if version:
        return _version("pyspark", "pyspark", version)
    remedy = 'pip install "streamops[spark]"'
    if platform is not None:
        remedy = "run this in a notebook or job, which have Spark's own folder on PYTHONPATH; do not install another"
    return Finding("pyspark", False, "cannot be imported", remedy)


def _package(name: str) -> Finding:
    try:
        return _version(name, name, metadata.version(name))
    except metadata.PackageNotFoundError:
        return Finding(name, False, "not installed", f'pip install "{requirement(name)}"')


def _version(name: str, package: str, version: str) -> Finding:
    verdict = compare_version(package, version)
    if verdict is None:
        return Finding(name, True, version)
    return Finding(name, False, f"{version} is {verdict}", f'pip install "{requirement(package)}"')


def _features() -> Iterator[Finding]:
    """What the imported version of Spark has, and what it lacks."""
    yield _state_api()
    missing = {
        "sources.outbox, state.read and the other tools for checkpoints": (
            has_transform() and has_python_sources(),
            "4.0",
        ),
        "erasure.shred, erasure.unshred, and a schema registry in sources.kafka_events": (
            has_arrow_functions(),
            "4.1",
        ),
    }
    for what, (is_there, since) in missing.items():
        if not is_there:
            yield Finding("not there", True, what, f"Spark {since}, or a runtime with it")


def _state_api() -> Finding:
    name, later = "state API", "transformWithStateInPandas"
    messages = state_messages_problem() if has_transform() else (f"{later} needs Spark 4", "")
    if messages is None:
        return Finding(name, True, f"{later}, in a session with RocksDB")
    why, package = messages
    remedy = f'pip install "{package}", to chain operators' if package else ""
    return Finding(name, True, f"applyInPandasWithState: {why}", remedy)


def _extras(platform: Platform | None) -> Iterator[Finding]:
    found = extras(with_spark=platform is None)
    missing = []
    for extra in found:
        if not extra.is_complete:
            missing.append(extra.name)
            continue
        versions = ", ".join(f"{name} {version}" for name, version in extra.packages.items())
        needed = " ".join(f'"{requirement}"' for requirement in extra.problems)
        yield Finding(
            f"extra {extra.name}",
            True,
            versions + (" is too old or too new" if needed else ""),
            f"pip install {needed}" if needed else "",
        )
        if extra.name in {"delta", "iceberg"} and not has_views():
            without = f"sinks.{extra.name} without writer='spark', which needs PyArrow 16"
            yield Finding("not there", True, without, "pass writer='spark'")
    if missing:
        yield Finding("extras not there", True, ", ".join(missing))


def _worker(environ: Mapping[str, str]) -> Finding:
    """Check the interpreter of Spark's Python workers, by starting it."""
    name = "Python workers"
    remedy = f"export PYSPARK_PYTHON={sys.executable}"
    chosen = environ.get("PYSPARK_PYTHON")
    wrong = partial(Finding, name, False, remedy=remedy)
    if not chosen:
        hint = "for your own sessions; streamops.local_session() sets it if it is not set"
        wrong = partial(Finding, name, True, remedy=f"{remedy} {hint}")
    label = f"PYSPARK_PYTHON={chosen}" if chosen else "python3 on PATH (PYSPARK_PYTHON is not set)"
    program = shutil.which(chosen or "python3", path=environ.get("PATH", ""))
    if program is None:
        return wrong(f"{label} does not exist")
    code = f"import sys, {_WORKER_IMPORTS}; print('%d.%d' % sys.version_info[:2])"
    try:
        done = subprocess.run(
            [program, "-c", code],
            env=dict(environ),
            cwd=tempfile.gettempdir(),  # a worker must not depend on the current directory
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return wrong(f"{label} does not start: {error}")
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        return wrong(f"{label} cannot import what a worker needs: {why}")
    version = done.stdout.strip()
    driver = "{}.{}".format(*sys.version_info[:2])
    if version != driver:
        found = f"{label} is Python {version}, the driver is {driver}: Spark refuses that"
        return wrong(found)
    return Finding(name, True, f"{label} imports {_WORKER_IMPORTS}")


_SETTINGS = (MASTER, PARTITIONS, PROVIDER, TIMEZONE)


def _check_settings(settings: Mapping[str, str], environ: Mapping[str, str]) -> Iterator[Finding]:
    provider = settings[PROVIDER]
    is_rocksdb = "RocksDB" in provider  # platforms have their own class names
    yield Finding(
        "state store",
        True,
        (provider or "not set") + ("" if is_rocksdb else ": one stateful operator per query"),
        ""
        if is_rocksdb
        else f'spark.conf.set("{PROVIDER}", "{ROCKSDB}") before the first operator of a query is applied, '
        "to chain operators",
    )
    timezone = settings[TIMEZONE]
    yield _setting(
        "time zone",
        timezone in {"UTC", "Etc/UTC", "Z", "+00:00"},
        timezone or "not set",
        f'spark.conf.set("{TIMEZONE}", "UTC"): otherwise text is parsed and shown in local time',
    )
    local = re.fullmatch(r"local(?:\[(\d+|\*)(?:,(\d+))?\])?", settings[MASTER])
    if local is None:  # a cluster: its size, retries and interpreters are configured elsewhere
        return
    cores = os.cpu_count() or 1 if local[1] == "*" else int(local[1] or 1)
    partitions = settings[PARTITIONS]
    yield _setting(
        "shuffle partitions",
        int(partitions or 200) <= max(8, 4 * cores),
        f"{partitions or 'not set'} on {cores} cores",
        f'spark.conf.set("{PARTITIONS}", "{cores}") before a query\'s first start: each'
        " partition is a state store that commits in every micro-batch",
    )
    yield _setting(
        "retries",
        int(local[2] or 1) > 1,
        settings[MASTER],
        f'start the session with master "local[{cores},4]": without the 4, the first failed'
        " task ends the query",
    )
    if "SPARK_CONNECT_MODE_ENABLED" in environ and "SPARK_LOCAL_REMOTE" not in environ:
        return  # the server has its own environment
    python = environ.get("PYSPARK_PYTHON")
    yield _setting(
        "worker interpreter",
        _is_this_interpreter(python or "python3", environ),
        python or "the first python3 on PATH (PYSPARK_PYTHON is not set)",
        f"export PYSPARK_PYTHON={sys.executable} before the session starts",
    )


def _is_this_interpreter(program: str, environ: Mapping[str, str]) -> bool:
    found = shutil.which(program, path=environ.get("PATH", ""))
    # The interpreters of virtual environments are links to one file: the folder distinguishes
    # them, and the file distinguishes two Pythons in one folder.
    return found is not None and all(
        read(found) == read(sys.executable) for read in (os.path.dirname, os.path.realpath)
    )


def _setting(name: str, ok: bool, found: str, remedy: str) -> Finding:
    return Finding(name, ok, found, "" if ok else remedy)
