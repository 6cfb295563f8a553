"""The library follows the architecture rules, and the checker reports every violation."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.architecture.rules import LONGEST_FILE, layer_of, may_import, violations

ROOT = Path(__file__).parents[2]

CLEAN = {
    "__init__.py": "from streamops import windows",
    "kernel/__init__.py": "",
    "kernel/time.py": "import numpy",
    "windows/__init__.py": "from streamops.windows.tumbling import tumbling",
    "windows/core/__init__.py": "",
    "windows/core/fixed.py": "from streamops.kernel import time\nimport pyarrow",
    "windows/tumbling.py": """\
from pyspark.sql import functions as F
from streamops.kernel.time import x
from streamops.spark import drive
from streamops.windows.core.fixed import y

tumbling = F.expr("1 + 1")
""",
    "aggregates/__init__.py": "from streamops.sketches.hll import approx_count_distinct",
    "aggregates/core/__init__.py": "",
    "aggregates/core/sums.py": "",
    "sketches/__init__.py": "",
    "sketches/core/__init__.py": "",
    "sketches/core/hll.py": "",
    "sketches/hll.py": "",
    "changes/apply.py": "from streamops import aggregates\nimport streamops.aggregates",
    "spark/__init__.py": "",
    "spark/drive.py": "from streamops.environment import java\nfrom streamops.kernel import time",
    "environment/__init__.py": "",
    "environment/java.py": "",
    "environment/doctor.py": "from streamops.spark import drive",
    "testing/__init__.py": "from streamops.spark.drive import x\nimport streamops.kernel.time",
    "examples/__init__.py": "",
    "examples/flights/__main__.py": "from streamops import testing, windows\nimport streamops.aggregates",
}


def path_of(file: str) -> str:
    return file if file.startswith("examples/") else f"streamops/{file}"


def plant(folder: Path, files: dict[str, str]) -> list[str]:
    for name, text in (CLEAN | files).items():
        path = folder / path_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return violations(folder)


def test_the_library_follows_the_rules() -> None:
    assert violations(ROOT) == []


def test_an_import_cycle_is_reported(tmp_path: Path) -> None:
    (found,) = plant(
        tmp_path,
        {
            "spark/step.py": "from streamops.spark import drive",
            "spark/drive.py": "def f():\n    from streamops.spark import step",
        },
    )
    assert found.startswith("streamops: import cycle: ")
    assert "streamops.spark.drive" in found
    assert "streamops.spark.step" in found


def test_a_clean_tree_has_no_violations(tmp_path: Path) -> None:
    assert plant(tmp_path, {}) == []


@pytest.mark.parametrize(
    ("file", "line"),
    [
        ("kernel/time.py", "import pyspark.sql"),
        ("kernel/time.py", "from pandas import DataFrame"),
        ("kernel/time.py", "import streamops"),
        ("kernel/time.py", "from streamops import spark"),
        ("kernel/time.py", "from streamops.windows import core"),
        ("kernel/time.py", "def f():\n    from streamops.spark.drive import x"),
        ("kernel/time.py", "if TYPE_CHECKING:\n    import pyspark"),
        ("kernel/time.py", "from ..spark import drive"),
        ("kernel/time.py", "import importlib\nimportlib.import_module('streamops.spark')"),
        ("environment/java.py", "from streamops.spark import drive"),
        ("environment/java.py", "from streamops.environment import doctor"),
        ("spark/drive.py", "from streamops.environment import doctor"),
        ("windows/core/fixed.py", "from pyspark.sql import functions"),
        ("windows/core/fixed.py", "import pandas as pd"),
        ("windows/core/fixed.py", "from streamops.windows.tumbling import tumbling"),
        ("windows/core/fixed.py", "from streamops.spark import drive"),
        ("windows/core/fixed.py", "from streamops.aggregates.core import functions"),
        ("sketches/hll.py", "from streamops.windows.tumbling import tumbling"),
        ("sketches/hll.py", "from streamops.windows import tumbling"),
        ("sketches/hll.py", "from streamops.windows.core import fixed"),
        ("sketches/hll.py", "from streamops import aggregates"),
        ("sketches/core/__init__.py", "from streamops import windows"),
        ("changes/apply.py", "from streamops.aggregates.core import functions"),
        ("aggregates/__init__.py", "from streamops.sketches.core import hll"),
        ("aggregates/core/sums.py", "import streamops.sketches"),
        ("windows/tumbling.py", "from streamops import sketches"),
        ("windows/tumbling.py", "from streamops import aggregates"),
        ("windows/tumbling.py", "from streamops.aggregates.core import functions"),
        ("windows/tumbling.py", "from streamops.testing import x"),
        ("spark/drive.py", "from streamops.windows import tumbling"),
        ("spark/drive.py", "import streamops.windows.core.fixed"),
        ("spark/drive.py", "from streamops.testing import x"),
        ("testing/__init__.py", "from streamops.windows import tumbling"),
        ("testing/__init__.py", "from examples import flights"),
        ("examples/flights/__main__.py", "from streamops.windows.core import fixed"),
        ("examples/flights/__main__.py", "from streamops.kernel.time import x"),
        ("examples/flights/__main__.py", "from streamops.spark.drive import x"),
        ("spark/drive.py", "import pickle"),
        ("spark/drive.py", "from cloudpickle import dumps"),
        ("spark/drive.py", "from streamops.kernel.errors import SpecError\nSpecError('A', 'b')"),
        ("kernel/time.py", "from streamops.kernel.errors import SinkError as E\nE('A', 'b')"),
        ("spark/drive.py", "eval('1')"),
        ("spark/drive.py", "exec('1')"),
        ("spark/drive.py", "frame._jdf"),
        ("spark/drive.py", "frame.sparkSession._jvm"),
        ("spark/drive.py", "spark._jsparkSession"),
        ("spark/drive.py", "spark.sparkContext"),
        ("spark/drive.py", "getattr(spark, 'sparkContext')"),
        ("spark/drive.py", "from pyspark.sql import functions as F\nF.expr(f'{name} + 1')"),
        ("spark/drive.py", "from pyspark.sql.functions import expr\nexpr('a' + f'{name}')"),
        ("spark/drive.py", "frame.selectExpr('a', f'{name} AS b')"),
        ("spark/drive.py", "\n" * (LONGEST_FILE + 1)),
    ],
)
def test_the_checker_reports_a_violation(tmp_path: Path, file: str, line: str) -> None:
    found = plant(tmp_path, {file: line})
    assert len(found) == 1
    assert found[0].startswith(f"{path_of(file)}:")


def test_an_unlisted_folder_is_a_family() -> None:
    assert layer_of("streamops.joins.interval") == "joins"
    assert layer_of("streamops.joins.core.interval") == "joins/core"
    assert layer_of("streamops.joins.conditions") == "joins/conditions"
    assert may_import("joins/core", "joins/conditions")
    assert not may_import("joins/core", "sinks/conditions")
    assert not may_import("joins/conditions", "joins")
