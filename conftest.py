"""What all tests share: Hypothesis profiles, the fixtures of the shipped plugin, markers."""

from __future__ import annotations

import doctest
import importlib
import importlib.util
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, Phase, settings

from streamops.kernel.errors import RequirementError
from streamops.kernel.versions import has_views

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from pyspark.sql import SparkSession

    from tests.kafka.broker import Broker
    from tests.servers.mariadb import Server as MariaServer
    from tests.servers.opensearch import Server as OpenSearchServer
    from tests.servers.prometheus import Prometheus
    from tests.servers.redis import Server as RedisServer

# Deadlines and slowness say something about the machine, not about the code. The
# short profiles draw the same examples each time, so that a commit is not green by luck; "laws"
# draws new ones each time. "few" is for other packages: each law meets them, not each history.
_CALM = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("few", max_examples=3, derandomize=True, **_CALM)
settings.register_profile("quick", max_examples=7, derandomize=True, **_CALM)
settings.register_profile("dev", max_examples=25, derandomize=True, **_CALM)
settings.register_profile("test", max_examples=100, derandomize=True, **_CALM)
settings.register_profile("laws", max_examples=1_000, print_blob=True, **_CALM)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "dev"))
if (
    os.environ.get("HYPOTHESIS_SHRINK") == "no"
):  # whether a test fails, and not for which least case
    phases = (Phase.explicit, Phase.generate)
    settings.register_profile("no shrinking", settings.default, phases=phases)
    settings.load_profile("no shrinking")

_NEEDED = ("spark", "postgres", "mariadb", "kafka", "opensearch", "redis", "prometheus")
"""Fixtures with markers of the same name."""
_PLUGIN = "streamops.testing.plugin"

collect_ignore = ["examples/flights", "examples/orders"]  # their tests are in tests/examples
_IS_SPARK_41 = importlib.util.find_spec("pyspark.sql.streaming.datasource") is None
if _IS_SPARK_41:
    collect_ignore.append("streamops/testing/source.py")  # for Spark 4.2 and later
if importlib.util.find_spec("pyspark.sql.streaming.stateful_processor") is None:
    collect_ignore += [  # for Spark 4.0 and later
        "streamops/spark/shard_processor.py",
        "tests/spark/test_shard_processor.py",
        "tests/state/test_segments_spark.py",
    ]
if not has_views():
    collect_ignore.append("streamops/sinks/delta.py")  # for Arrow 16 and later
collect_ignore_glob = ["examples/pipeline/*"]  # what `spark-pipelines run` imports


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    """Skip a test whose fixtures need what these packages are too old for."""
    return (yield from _without_what_is_refused())


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip a test of what these packages are too old for."""
    return (yield from _without_what_is_refused())


def _without_what_is_refused() -> Iterator[None]:
    """With ``OLD_PACKAGES``, what a version cannot do is refused, and not tested."""
    try:
        return (yield)
    except (RequirementError, doctest.UnexpectedException) as raised:
        # That of an example has the class, the error and its traceback.
        error = raised if isinstance(raised, RequirementError) else raised.exc_info[1]
        refused = getattr(error, "code", None) == "VERSION_NOT_SUPPORTED"
        if refused and "OLD_PACKAGES" in os.environ:
            pytest.skip(f"{error.args[0]}".splitlines()[0])
        raise


@pytest.fixture(autouse=True)
def figures_are_closed() -> Iterator[None]:
    """Close the figures of pyplot, also those of doctests, which it would retain."""
    _close_figures()
    yield
    _close_figures()


def _close_figures() -> None:
    pyplot = sys.modules.get("matplotlib.pyplot")
    if pyplot is not None:
        pyplot.close("all")


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """Connection string of a PostgreSQL server that runs as long as the tests."""
    from tests.servers.installed import skip

    server = importlib.import_module("tests.servers.postgres")
    installed = server.programs()
    if installed is None:
        skip("PostgreSQL is not installed: apt-get install -y postgresql")
    with server.running(installed) as where:
        yield where


@pytest.fixture(scope="session")
def mariadb() -> Iterator[MariaServer]:
    """A MariaDB server that runs as long as the tests."""
    from tests.servers import installed

    missing = "MariaDB or PyMySQL is not installed: apt-get install -y mariadb-server"
    yield from _served(installed.mariadb(), missing)


@pytest.fixture(scope="session")
def opensearch() -> Iterator[OpenSearchServer]:
    """An OpenSearch server that runs as long as the tests."""
    from tests.servers import installed

    missing = (
        "OpenSearch, a Java that runs it or opensearch-py is not there: scripts/get-opensearch"
    )
    yield from _served(installed.opensearch(), missing)


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """A Redis server that runs as long as the tests."""
    from tests.servers import installed

    missing = "Redis or redis-py is not installed: apt-get install -y redis-server"
    yield from _served(installed.redis(), missing)


@pytest.fixture
def prometheus(tmp_path: Path) -> Iterator[Callable[[CollectorRegistry], Prometheus]]:
    """A function that starts a Prometheus server, which scrapes a registry."""
    from tests.servers.installed import skip

    server = importlib.import_module("tests.servers.prometheus")
    installed = server.program()
    if installed is None:
        skip("Prometheus is not there: scripts/get-prometheus")
    with ExitStack() as stack:

        def scrape(registry: CollectorRegistry) -> Prometheus:
            target = stack.enter_context(server.exposing(registry))
            running: Prometheus = stack.enter_context(server.serving(installed, tmp_path, target))
            return running

        yield scrape


def pytest_configure(config: pytest.Config) -> None:
    importlib.import_module("tests.docstrings").install()
    frames = importlib.import_module("pyspark.sql").DataFrame
    if not hasattr(frames, "toArrow"):  # Spark 3.5
        versions = importlib.import_module("streamops.kernel.versions")
        frames.toArrow = versions.collect_arrow
        _let_create_frames_of_arrow(versions.create_frame)
    if _IS_SPARK_41:
        # It leaves the closing of its sockets to the garbage collector.
        config.addinivalue_line(
            "filterwarnings",
            "ignore:Exception ignored in.*socket:pytest.PytestUnraisableExceptionWarning",
        )
    # An installed streamops has registered its plugin by now; a bare checkout has not.
    plugins = config.pluginmanager
    if not plugins.hasplugin("streamops") and importlib.util.find_spec(_PLUGIN):
        plugins.register(importlib.import_module(_PLUGIN), "streamops")


def _let_create_frames_of_arrow(create_frame: Callable[..., Any]) -> None:
    sessions = importlib.import_module("pyspark.sql").SparkSession
    to_schema = importlib.import_module("pyspark.sql.pandas.types").from_arrow_schema
    create = sessions.createDataFrame

    def create_of(session: Any, data: Any, schema: Any = None, **options: Any) -> Any:
        if not isinstance(data, pa.Table):
            return create(session, data, schema, **options)
        return create_frame(session, data, schema or to_schema(data.schema))

    sessions.createDataFrame = create_of


@pytest.hookimpl(tryfirst=True)  # before `-m` selects
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("exhaustive"):
            item.add_marker("laws")  # with which they run
        for needed in _NEEDED:
            if needed in getattr(item, "fixturenames", ()):
                item.add_marker(needed)
    # Files that take minutes come first, so that no process waits for another one in the end.
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session")
def spark_conf() -> Mapping[str, str]:
    """The one session of a process can read Kafka and Avro if scripts/get-kafka was run."""
    from tests.jvm import SHORT_LIVED
    from tests.kafka.broker import jars

    conf = {
        "spark.python.daemon.module": "tests.workers.daemon",
        "spark.driver.extraJavaOptions": SHORT_LIVED,
    }
    connector = jars("connector")
    version: str = importlib.import_module("pyspark").__version__
    if connector and tuple(map(int, version.split(".")[:2])) >= (4, 2):  # which these jars need
        conf["spark.jars"] = ",".join(map(str, connector))
    return conf


@pytest.fixture(scope="session")
def spark(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The session of the plugin, whose Python processes are forked."""
    from tests.workers.fork_server import launcher

    with launcher(tmp_path_factory.mktemp("workers")) as executable:
        context: Any = spark.sparkContext
        context.pythonExec = str(executable)
        yield spark


@pytest.fixture(scope="session")
def kafka() -> Iterator[Broker]:
    """A Kafka broker that runs as long as the tests."""
    from tests.servers import installed

    missing = "Kafka or confluent-kafka is not there: scripts/get-kafka"
    yield from _served(installed.kafka(), missing)


def _served(server: AbstractContextManager[Any], missing: str) -> Iterator[Any]:
    """Start a server and yield it; skip the test if it is missing."""
    from tests.servers.installed import skip

    with server as running:
        if running is None:
            skip(missing)
        yield running
