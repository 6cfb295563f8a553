"""The command ``streamops why``."""

from __future__ import annotations

import sys
from pathlib import Path

import pyarrow as pa
import pytest

from streamops.__main__ import main
from streamops.errors import SpecError
from streamops.observe.command import _load
from streamops.testing import at
from tests.observe.test_explain import simulate, table, tumbling

JOB = """
from streamops import aggregates as agg, observe, windows

class Jobs:
    per_page = windows.tumbling(
        "1 minute", time="ts", by="k", agg={"n": agg.count(), "total": agg.sum("v")},
        delay="10 seconds",
    )

names = ["k", "ts", "v"]
source = observe.files(prepare=lambda rows: rows.rename_columns(names))
"""


@pytest.fixture
def checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "job_of_views.py").write_text(JOB)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "job_of_views", raising=False)
    batches = [table(("=a", at(5), 1), (None, at(6), 1)), table(("b", at(200), 1)), table()]
    simulate(tmp_path / "checkpoint", tumbling(), batches)
    return str(tmp_path / "checkpoint")


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--where", "k==a"], "1 result\n"),
        (["--null", "k"], "1 result\n"),
        (["--where", "k=b", "--window", "2024-01-01T00:03:20Z"], "the result is open until"),
        (["--where", "k=b", "--window", "2024-01-01T00:03:00Z/2024-01-01T00:04:00Z"], "open"),
        (["--where", "k=", "--source", "job_of_views:source"], "no row of k='' arrived"),
    ],
)
def test_it_prints_the_explanation(
    checkpoint: str, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", checkpoint, "--job", "job_of_views:Jobs.per_page", *arguments]) == 0
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["--job", "job_of_views:nothing"], "the job has no such object"),
        (["--job", "no_such_module:x"], "the job has no such object"),
        (["--job", "job_of_views"], "the job has no such object"),
        (["--job", "job_of_views:names"], "operator"),
        (["--job", "job_of_views:Jobs.per_page", "--where", "k"], "column=value"),
        (["--job", "job_of_views:Jobs.per_page", "--where", "z=1"], "column=value"),
        (["--job", "job_of_views:Jobs.per_page", "--where", "k=a", "--null", "k"], "two values"),
        (["--job", "job_of_views:Jobs.per_page", "--where", "k=a", "--where", "k=b"], "two values"),
        (["--job", "job_of_views:Jobs.per_page", "--where", "v=1"], "not a key"),
        (["--job", "job_of_views:Jobs.per_page", "--where", "v=1 or 1"], "not of its type"),
        (["--job", "job_of_views:Jobs.per_page", "--window", "today"], "not an instant"),
        (["--job", "job_of_views:Jobs.per_page", "--window", "2024-01-01"], "time zone"),
        (["--job", "job_of_views:Jobs.per_page", "--window", "1/2/3"], "not an instant"),
        (["--job", "job_of_views:Jobs.per_page", "--source", "job_of_views:names"], "not a source"),
    ],
)
def test_mistakes_are_explained(
    checkpoint: str, arguments: list[str], text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["why", checkpoint, *arguments]) == 1
    assert text in capsys.readouterr().out


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        (pa.int64(), "7", 7),
        (pa.bool_(), "true", True),
        (pa.date32(), "2024-01-01", at(0).date()),
        (pa.timestamp("us", "UTC"), "2024-01-01T01:00:00+01:00", at(0)),
        (pa.float64(), "0.5", 0.5),
        (pa.string(), "__import__('os')", "__import__('os')"),
    ],
)
def test_values_have_the_type_of_the_column(type_: pa.DataType, text: str, value: object) -> None:
    from streamops.observe.command import _convert

    assert _convert(text, "k", type_) == value


def test_a_job_that_fails_to_load_is_not_one_that_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What its module raises is shown, and not that there is no such object."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for name, text, error in (
        ("job_lacks", "import no_such_package_of_it", ModuleNotFoundError),
        ("job_value", "int('x')", ValueError),
        ("job_attribute", "''.nothing", AttributeError),
    ):
        (tmp_path / f"{name}.py").write_text(text)
        with pytest.raises(error):
            _load(f"{name}:operator")
    for name in ("job_missing:x", "job_missing.deep:x", ":x", ""):
        with pytest.raises(SpecError, match="no such object"):
            _load(name)
