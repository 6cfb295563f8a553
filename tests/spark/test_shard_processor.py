"""The process that Spark starts in the driver for each processor imports nothing of the operator."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
from pyspark.serializers import CloudPickleSerializer

from streamops import aggregates as agg
from streamops import windows
from streamops.spark.drive import resolve
from streamops.spark.shard_processor import ShardProcessor
from streamops.spark.step import ShardStep

DECLARES = """
import sys
from pyspark.serializers import CloudPickleSerializer
processor = CloudPickleSerializer().loads(open(sys.argv[1], "rb").read())
declared = []
class Handle:
    def getValueState(self, name, schema):
        declared.append(name)
    def getMapState(self, name, key, value):
        declared.append(name)
processor.init(Handle())
print(declared, sorted(m for m in sys.modules if m.startswith(("streamops.", "pandas", "pyarrow"))))
step, begin = processor._load()
print(step.where, begin)
"""


def test_the_declaration_of_state_imports_nothing_of_the_operator(tmp_path: Path) -> None:
    schema = pa.schema([("k", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))])
    operator = windows.tumbling(
        "1 minute", time="ts", by="k", agg={"n": agg.count()}, delay="1 minute"
    )
    spec = resolve(operator, (schema,), (None,))
    step = ShardStep(where="here", core=operator.core, spec=spec, shards=2, plan="")
    file = tmp_path / "processor"
    file.write_bytes(CloudPickleSerializer().dumps(ShardProcessor(step, event_time=True)))
    found = subprocess.run(
        [sys.executable, "-c", DECLARES, str(file)], capture_output=True, text=True, check=True
    )
    declared, loaded = found.stdout.splitlines()
    assert declared == (
        "['stored', 'segments'] "
        "['streamops.kernel', 'streamops.kernel.prompt', "
        "'streamops.spark', 'streamops.spark.shard_processor', 'streamops.spark.state_rows']"
    )
    assert loaded == "here None"
