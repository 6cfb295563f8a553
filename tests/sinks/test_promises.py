"""Each promise on the pages has a test that runs for each member of the family."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TESTS = ROOT / "tests"
CONTRACT = "tests/sinks/contract.py"
MEMBERS = {
    "postgres": ("tests/sinks/test_postgres.py", "class TestContract(Contract)"),
    "sqlalchemy, SQLite": ("tests/sinks/test_sqlalchemy.py", "class TestSqlite(OfDatabases)"),
    "sqlalchemy, MariaDB": ("tests/sinks/test_sqlalchemy.py", "class OfMariadb(OfDatabases)"),
    "sqlalchemy, PostgreSQL": ("tests/sinks/test_sqlalchemy.py", "class TestPostgres(OfDatabases)"),
    "delta": ("tests/sinks/test_delta.py", "class TestDelta(Contract)"),
    "iceberg": ("tests/sinks/test_iceberg.py", "class TestIceberg(Contract)"),
    "parquet": ("tests/sinks/test_parquet.py", "class TestParquet(AppendContract)"),
    "kafka": ("tests/sinks/test_kafka.py", "class TestLedger(LedgerContract)"),
    "kafka, by partition": (
        "tests/sinks/test_kafka_partitions.py",
        "class TestLedger(LedgerContract)",
    ),
    "redis, opensearch": ("tests/sinks/test_store_owners.py", 'pytest.param("opensearch"'),
}
ENTRIES = {
    "| none | the first |": "test_appended_rows_are_written_once",
    "| none | a later one |": "test_a_target_without_an_entry_of_a_query_that_has_started",
    "| of this query | the next |": "test_an_empty_micro_batch_advances_the_ledger",
    "| of this query | the same again, with the same rows |": "test_appended_rows_are_written_once",
    "| of this query | the same again, with other rows |": "test_a_repeated_micro_batch_with_other_rows",
    "| of this query | one after the next |": "test_restored_copies_are_detected",
    "| of this query | an older one |": "test_restored_copies_are_detected",
    "| of a newer run of this query |": "test_a_zombie_writes_nothing",
    "| of another query | the first |": "test_another_checkpoint_needs_a_decision",
    "| of another query that took over |": "test_another_checkpoint_needs_a_decision",
    "| of another target |": "tests/borders/test_ledger_targets.py",
    "| of this target, which was emptied": "tests/borders/test_ledger_targets.py",
}
FORMS = {
    "| any | no | appended rows |": "test_appended_rows_are_written_once",
    "| `revision`, or the columns of `sequence` | yes |": "test_rows_of_one_sequence_contradict_each_other",
    "| neither | yes |": "test_rows_without_a_sequence_replace_each_other",
    "| `_change_type` | yes |": "test_changes_that_contradict_the_table_change_nothing",
    "| `_change_type` | no |": "test_a_change_stream_without_key_is_a_multiset",
}
SENTENCES = {
    "Columns** that the rows do not have keep their value": "test_columns_that_others_added_and_filled_stay",
    "one query per checkpoint and sink": "test_a_driver_that_is_frozen_in_its_commit_and_goes_on",
}
ELSEWHERE = {
    "innodb_flush_log_at_trx_commit": "not of a session: only a crash of the machine shows it",
    "transaction_timeout": "from PostgreSQL 17 on",
    "idle_in_transaction_session_timeout": "the sink sets its own, and a test stops it: tests/kills",
    "standard_conforming_strings": "from PostgreSQL 19 on it is always on",
    "lower_case_table_names": "of a whole server, and only when it is created",
    "min.insync.replicas": "the tests have one broker",
    "transaction.max.timeout.ms": "of a whole cluster",
    "unclean.leader.election.enable": "the tests have one broker",
    "index.mode": "of Elasticsearch",
    "read_only": "of a whole server",
}
"""Settings of the page that no test sets, and why."""


def rows_of(page: str, heading: str) -> list[str]:
    """The rows of the tables of a section."""
    text = (ROOT / "docs" / page).read_text()
    section = text.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [line for line in lines if not re.match(r"\|[-| ]+\|$", line)]


@pytest.mark.parametrize(
    ("heading", "promises"), [("Exactly once", ENTRIES), ("What is written", FORMS)]
)
def test_each_row_of_a_table_has_a_test_in_the_contract(
    heading: str, promises: dict[str, str]
) -> None:
    contract, found = (ROOT / CONTRACT).read_text(), rows_of("sinks.md", heading)[1:]
    for row in found:
        (test,) = [of for begin, of in promises.items() if row.startswith(begin)] or [""]
        is_there = (ROOT / test).exists() if "/" in test else f"def {test}(" in contract
        assert is_there, row
        assert test, row
    assert all(any(row.startswith(begin) for row in found) for begin in promises)


def test_each_sentence_has_a_test_in_the_contract() -> None:
    page, contract = (ROOT / "docs/guarantees.md").read_text(), (ROOT / CONTRACT).read_text()
    for sentence, test in SENTENCES.items():
        assert sentence in page
        assert f"def {test}(" in contract


@pytest.mark.parametrize("member", MEMBERS)
def test_each_member_runs_the_contract(member: str) -> None:
    path, text = MEMBERS[member]
    assert text in (ROOT / path).read_text()


def test_each_sink_is_a_member() -> None:
    delivered = {
        row.split("`")[1] for row in rows_of("guarantees.md", "Delivery") if "`sinks." in row
    }
    members = {f"sinks.{member.partition(',')[0]}" for member in MEMBERS}
    assert {name.partition("(")[0] for name in delivered} <= members


def test_each_setting_of_an_owner_has_a_test() -> None:
    tests = [*TESTS.glob("sinks/*.py"), *TESTS.glob("borders/*.py"), *TESTS.glob("servers/*.py")]
    texts = "\n".join(path.read_text() for path in tests if path != Path(__file__)).casefold()
    rows = rows_of("guarantees.md", "Settings of the owner")[1:]
    missing, excused = [], set()
    for row in rows:
        for setting in re.findall(r"`([^`]+)`", row.split("|")[2]):
            name = re.split(r"[=:]", setting)[0].strip()
            if name in ELSEWHERE:
                excused.add(name)
            elif name.casefold() not in texts:
                missing.append(name)
    assert not missing, ", ".join(missing)
    assert excused == ELSEWHERE.keys()
    assert all(ELSEWHERE.values())
    assert len(rows) > 30
