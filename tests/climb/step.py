"""One version of Spark continues queries, in the environment of that version.

``python -m tests.climb.step REQUEST`` reads what to run, and writes what each query emitted beside it.
"""

from __future__ import annotations

import json
import re
import sys
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pyspark
from pyspark.sql import SparkSession

import streamops
from streamops.environment.settings import PROVIDER
from streamops.kernel.errors import StreamopsError
from streamops.testing.streaming import run_query
from tests.climb.cases import STORES, cases
from tests.spark.test_every_operator import Case, inputs, split, tag, through
from tests.workers.fork_server import launcher

_LIMIT = 600
_PRINTS = threading.Lock()


def main(request: Path) -> None:
    """Run what was requested."""
    wanted = json.loads(request.read_text())
    where = Path(streamops.__file__).resolve()
    assert where.is_relative_to(Path(sys.prefix).resolve()), f"not the wheel's code: {where}"
    assert pyspark.__version__ == wanted["version"], pyspark.__version__
    spark = streamops.local_session(
        shuffle_partitions=1,
        memory="2g",
        conf={"spark.python.daemon.module": "tests.workers.daemon"},
    )
    known = cases(wanted["count"])
    found = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder, launcher(Path(folder)) as executable:
        context: Any = spark.sparkContext
        context.pythonExec = str(executable)
        for api, store in STORES.items():
            spark.conf.set(PROVIDER, store)
            todo = [query for query in wanted["queries"] if query["api"] == api]
            with ThreadPoolExecutor(2) as pool:
                found += pool.map(lambda query: _run(spark, known, query), todo)
        spark.stop()
    request.with_suffix(".results.json").write_text(json.dumps(found))


def _run(spark: SparkSession, known: dict[str, Case], query: dict[str, Any]) -> dict[str, Any]:
    """What the query emits on this version: refusals, an error, or the rows of each micro-batch."""
    folder, refused = Path(query["folder"]), {}
    chosen = {name: known[name] for name in query["names"]}
    frames = {}
    for name, case in chosen.items():
        there = len(list((folder / name / "0").glob("input/*")))
        streams = inputs(spark, case, folder / name, range(there, query["stop"]))
        try:
            frames[name] = through(case, streams, name)
        except StreamopsError as error:
            refused[name] = error.code
    emitted: dict[str, list[list[str]]] = {name: [] for name in frames}
    failure = None
    try:
        for _, table, _ in run_query(tag(frames), folder, _LIMIT) if frames else ():
            for name, rows in split(table, frames).items():
                emitted[name].append(rows)
    except Exception as error:  # whatever Spark raises is a result
        causes = re.findall(r"^\s*[\w.]+(?:Error|Exception): .*", str(error), re.MULTILINE)
        failure = f"{type(error).__name__}: {' '.join(causes[-1:] or str(error).split())[:300]}"
    with _PRINTS:
        total = sum(len(batch) for of in emitted.values() for batch in of)
        names = ", ".join(query["names"])
        print(
            f"  {query['api']}: {failure or refused or f'{total} rows'} <- {names}"[:240],
            flush=True,
        )
    return query | {"refused": refused, "failure": failure, "emitted": emitted}


if __name__ == "__main__":
    main(Path(sys.argv[1]))
