"""The list of faults fits the tree: what `python -m tests.faults.inject` plants is there."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.inject import JVM, ROOT, Fault, read_faults

FAULTS = read_faults()

AREAS = {
    *(f"windows.{name}" for name in ("grid", "session", "sliding", "compare", "running")),
    *(f"windows.{name}" for name in ("rolling", "over", "resample")),
    *(f"joins.{name}" for name in ("interval", "enrich", "tables", "timeline")),
    *(f"joins.asof.{direction}" for direction in ("backward", "forward", "nearest")),
    *(f"changes.{name}" for name in ("latest", "normalize", "apply", "history")),
    *(f"changes.{name}" for name in ("aggregate", "fold")),
    *(f"changelog.{name}" for name in ("classify", "conflicts", "emit")),
    *(f"sketches.{name}" for name in ("hll", "kll", "theta", "frequent", "count_min")),
    *(f"sketches.{name}" for name in ("bloom", "minhash", "seen")),
    "aggregates",
    "search.match",
    "patterns",
    "process",
    "sourcing",
    *(f"time.{name}" for name in ("producers", "track_clock", "correct_clock", "guard")),
    "erasure.core",
    "observe.supervision",
    "state.rewrite",
    "observe.explain",
    *(f"kernel.{name}" for name in ("grids", "codec", "hashing", "calendar")),
    *(f"spark.{name}" for name in ("step", "packing", "drive")),
}


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_the_original_text_of_a_fault_occurs_once(fault: Fault) -> None:
    assert fault.find(ROOT).is_file()
    assert fault.original != fault.replacement


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.id)
def test_the_tests_that_probably_notice_a_fault_exist(fault: Fault) -> None:
    assert fault.tests
    assert [name for name in fault.tests if not (ROOT / name).exists()] == []


def test_every_area_has_faults() -> None:
    assert {fault.area for fault in FAULTS} == AREAS


def test_there_are_60_faults_with_different_names() -> None:
    assert len({fault.id for fault in FAULTS}) == len(FAULTS) >= 60


def test_a_fault_is_planted_with_the_indentation_of_its_line(tmp_path: Path) -> None:
    module = tmp_path / "streamops" / "module.py"
    module.parent.mkdir()
    module.write_text("def f(x):\n    y = x\n    return y + 1\n")
    about = {"id": "f", "area": "kernel", "fault": "", "folder": "streamops", "tests": ()}
    fault = Fault(original="return y", replacement="y = -y\nreturn y", **about)
    fault.plant(tmp_path)
    assert module.read_text() == "def f(x):\n    y = x\n    y = -y\n    return y + 1\n"
    with pytest.raises(LookupError, match="f: the original text must occur once"):
        Fault(original="return z", replacement="", **about).plant(tmp_path)


def test_the_markers_are_those_of_the_makefile() -> None:
    assert JVM.split(" or ") == [
        "spark",
        "connect",
        "debezium",
        "postgres",
        "mariadb",
        "kafka",
        "opensearch",
        "redis",
        "prometheus",
        "slow",
    ]
