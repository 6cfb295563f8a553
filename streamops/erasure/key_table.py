"""Keys of subjects in a table of a database."""

from __future__ import annotations

import datetime as dt
import importlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession

from streamops.erasure import conditions
from streamops.erasure.core.shredding import Wrapping, WrappingKey, new_key
from streamops.erasure.encryption import require_subject
from streamops.kernel.databases import mask, parse_database_url, secrets_of_database_url
from streamops.kernel.errors import StreamopsError, located_methods
from streamops.kernel.parameters import require_columns, require_name, require_package
from streamops.kernel.values import Refused, converter
from streamops.kernel.versions import create_frame, to_arrow
from streamops.spark.columns import column, require_frame, spark_schema

_DIALECTS = ("sqlite", "postgresql")
_AT_A_TIME = 1_000
"""Subjects in a condition: databases limit the number of parameters."""
_SECONDS = 60
"""How long a writer of SQLite waits for another one."""

_to_text, _to_bigint = converter(pa.string()), converter(pa.int64())

Subjects = str | int | Iterable[str | int]
Entry = tuple[str, int, bytes | None]
"""Subject, version and key of a row."""

KEYS = pa.schema([("subject", pa.string()), ("version", pa.int32()), ("key", pa.binary())])


@located_methods("erasure.KeyTable")
@dataclass(frozen=True, slots=True, kw_only=True)
class KeyTable:
    """A table with exactly one key per subject and version, in PostgreSQL or SQLite.

    All methods run in the driver, each in a transaction. The table has the columns ``subject``, ``version``,
    ``key`` and ``erased_at``, and is created with the first keys. An erased subject stays in the table
    without its key, so that it never gets another one.

    Parameters
    ----------
    url : str
        URL of the database as in SQLAlchemy, such as ``postgresql+psycopg://app@host/keys`` or
        ``sqlite:////data/keys.db``. Keep this database apart from the data, with backups of its own.
    table : str
        Name of the table.
    schema : str, optional
        Schema of the table. Default: that of the connection.
    wrapping_key : function, optional
        Returns 32 bytes, by which all keys in the table are encrypted. The database, its log and its
        backups have wrapped keys only. It also runs on the executors, in ``shred`` and ``unshred``. None:
        keys are stored as they are.

    Raises
    ------
    SpecError
        ``PARAMETER_TYPE``, ``NOT_A_URL``; ``INVALID_PARAMETER``: another database;
        ``INVALID_PARAMETER``: the keys would be lost.
    RequirementError
        ``PACKAGE_MISSING``: the extra ``erasure`` is not installed.

    Examples
    --------
    >>> from streamops import erasure
    >>> table = erasure.KeyTable(url="sqlite:////data/keys.db")
    >>> table.erase(["user-17"])
    1

    Notes
    -----
    Errors of the methods: ``StreamopsError`` ``KEY_TABLE_UNAVAILABLE``, without parameters of statements.
    """

    url: str = field(repr=False)
    table: str = "streamops_keys"
    schema: str | None = None
    wrapping_key: WrappingKey | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """Validate the parameters."""
        require_name(self.url, parameter="url")
        require_name(self.table, parameter="table")
        if self.schema is not None:
            require_name(self.schema, parameter="schema")
        url = self._parsed_url()
        dialect = url.get_backend_name()
        if dialect not in _DIALECTS:
            raise conditions.DIALECT_UNSUPPORTED.error(expected=" or ".join(_DIALECTS), got=dialect)
        if dialect == "sqlite" and url.database in (None, "", ":memory:"):
            raise conditions.KEY_TABLE_IN_MEMORY.error(got="a database in memory")

    def create_keys(self, batch: DataFrame, *, subject: str) -> DataFrame:
        """The keys of all subjects of a frame, created where there are none.

        The keys are committed before the method returns: a value is never stored before its key. If two
        writers create the key of a subject at the same time, both get the same one.

        Parameters
        ----------
        batch : DataFrame
            A batch frame, such as a micro-batch in ``foreachBatch``. It is read once: persist it. Its
            distinct subjects pass through the driver.
        subject : str
            Column of the subject: string or integer. Nulls, and text with a zero byte, get no key.

        Returns
        -------
        DataFrame
            ``subject``, ``version`` and ``key``, of the subjects of the frame.

        Raises
        ------
        SpecError
            ``NOT_A_FRAME``, ``STREAMING_FRAME``.
        ColumnNotFound, SchemaError
            There is no column `subject`, or it is neither text nor integers.
        """
        require_frame(batch, "the first argument")
        require_columns(batch.columns, {"subject": [subject]})
        if batch.isStreaming:
            raise conditions.BATCH_IS_A_STREAM.error(got="a streaming frame")
        require_subject(batch.schema[subject], "the column")
        found = to_arrow(batch.select(column(subject).cast("string").alias("subject")).distinct())
        return _to_frame(batch.sparkSession, self._create(found.column("subject").to_pylist()))

    def keys(self, spark: SparkSession) -> DataFrame:
        """All keys, as they are now. They pass through the driver: for large tables, read it with Spark."""
        sa = _sqlalchemy()
        with self._transaction() as (connection, table):
            wanted = sa.select(table.c.subject, table.c.version, table.c.key)
            rows = [tuple(row) for row in connection.execute(wanted)]
        return _to_frame(spark, rows)

    def erase(self, subjects: Subjects) -> int:
        """Delete the keys of subjects, for good, and return how many of them had one.

        A subject that has no key yet is erased, too: it will not get one.

        Raises
        ------
        SpecError
            ``PARAMETER_TYPE``: a value is neither text nor an integer, such as None or 17.0.
        """
        sa = _sqlalchemy()
        wanted = _parse_subjects(subjects)
        erased = 0
        with self._transaction() as (connection, table):
            now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
            for some in _chunks(wanted):
                rows = [
                    {"subject": text, "version": 1, "key": None, "erased_at": now} for text in some
                ]
                connection.execute(_insert(connection)(table).on_conflict_do_nothing(), rows)
            _lock(connection, table, wanted)
            for some in _chunks(wanted):
                mine = table.c.subject.in_(some)
                holders = sa.select(sa.func.count(sa.distinct(table.c.subject)))
                erased += connection.execute(
                    holders.where(mine, table.c.key.is_not(None))
                ).scalar_one()
                connection.execute(
                    sa.update(table)
                    .where(mine, table.c.key.is_not(None))
                    .values(key=None, erased_at=now)
                )
        return erased

    def rotate(self, subjects: Subjects) -> int:
        """Create a further version of the keys of subjects, and return how many there are.

        New values are encrypted by it. Values of earlier versions are still decrypted by theirs, and equal
        values of different versions are different bytes. Erased and unknown subjects get none.
        """
        sa = _sqlalchemy()
        wanted, created = _parse_subjects(subjects), 0
        wrapping = self._wrapping()
        with self._transaction() as (connection, table):
            # A subject that was created after the lock may be erased at any time.
            for some in _chunks(_lock(connection, table, wanted)):
                entries = sa.select(table.c.subject, table.c.version, table.c.key)
                versions: dict[str, int] = {}
                erased = set()
                for subject, version, key in connection.execute(
                    entries.where(table.c.subject.in_(some))
                ):
                    versions[subject] = max(version, versions.get(subject, 0))
                    erased |= {subject} if key is None else set()
                rows = [
                    _entry(subject, version + 1, wrapping)
                    for subject, version in versions.items()
                    if subject not in erased
                ]
                if rows:
                    connection.execute(sa.insert(table), rows)
                created += len(rows)
        return created

    def rewrap(self, wrapping_key: WrappingKey) -> KeyTable:
        """Encrypt all keys by another wrapping key, and return the table with it.

        Destroy the former wrapping key afterwards: keys in backups and in the log of the database, also
        those of erased subjects, cannot be unwrapped any more. Stop queries before, and start them with
        the new one: with the former they reject all values as "unusable_key".

        Raises
        ------
        StreamopsError
            ``KEY_NOT_UNWRAPPED``: a key is not wrapped by the present wrapping key. Nothing is changed.
        """
        sa = _sqlalchemy()
        old, new = self._wrapping(), Wrapping.of(wrapping_key)
        assert new is not None
        with self._transaction() as (connection, table):
            entries = sa.select(table.c.subject, table.c.version, table.c.key)
            _lock(connection, table)
            stored = connection.execute(entries.where(table.c.key.is_not(None))).all()
            for subject, version, key in stored:
                readable = key if old is None else old.unwrap(subject, bytes(key))
                if readable is None:
                    raise conditions.KEY_NOT_UNWRAPPED.error(
                        got=f"version {version} of a subject in {self.table!r}"
                    )
                connection.execute(
                    sa.update(table)
                    .where(
                        table.c.subject == subject,
                        table.c.version == version,
                        table.c.key.is_not(None),  # one created after the lock may be erased by now
                    )
                    .values(key=new.wrap(subject, readable))
                )
        return replace(self, wrapping_key=wrapping_key)

    def _create(self, subjects: Iterable[str | None]) -> list[Entry]:
        """The entries of subjects, which are created where there are none."""
        # In sorted order, so that two writers do not wait for each other.
        usable = _parse_subjects(text for text in subjects if text is not None)
        wrapping = self._wrapping()
        with self._transaction() as (connection, table):
            return _create(connection, table, usable, wrapping)

    def _wrapping(self) -> Wrapping | None:
        return Wrapping.of(self.wrapping_key)

    def _table(self) -> Any:
        sa = _sqlalchemy()
        return sa.Table(
            self.table,
            sa.MetaData(),
            sa.Column("subject", sa.Text, primary_key=True),
            sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("key", sa.LargeBinary),
            sa.Column("erased_at", sa.DateTime),
            schema=self.schema,
        )

    @contextmanager
    def _transaction(self) -> Iterator[tuple[Any, Any]]:
        """A connection with an open transaction, and the table, which is created if it is missing."""
        sa, table = _sqlalchemy(), self._table()
        engine = self._engine()
        try:
            with engine.begin() as connection:
                if not sa.inspect(connection).has_table(self.table, schema=self.schema):
                    # PostgreSQL refuses one of two that create a table at the same time.
                    races = sa.exc.IntegrityError, sa.exc.ProgrammingError
                    with suppress(*races), connection.begin_nested():
                        connection.execute(sa.schema.CreateTable(table, if_not_exists=True))
            with engine.begin() as connection:
                yield connection, table
            if engine.dialect.name == "sqlite":
                # With a write-ahead log, the bytes of deleted keys would still be in it.
                with engine.connect() as connection:
                    connection.connection.driver_connection.execute(
                        "PRAGMA wal_checkpoint(TRUNCATE)"
                    )
        except sa.exc.SQLAlchemyError as error:
            raise self._unavailable(error) from None
        finally:
            engine.dispose()

    def _parsed_url(self) -> Any:
        return parse_database_url(self.url, extra="erasure")

    def _engine(self) -> Any:
        sa = _sqlalchemy()
        url = self._parsed_url()
        if url.get_backend_name() != "sqlite":
            # At another level, a statement would not see what was committed after the first one.
            return sa.create_engine(
                url,
                hide_parameters=True,
                poolclass=sa.pool.NullPool,
                isolation_level="READ COMMITTED",
            )
        engine = sa.create_engine(
            url,
            hide_parameters=True,
            poolclass=sa.pool.NullPool,
            connect_args={"timeout": _SECONDS},
        )

        def overwrite_deleted(connection: Any, _: Any) -> None:
            connection.isolation_level = None  # transactions begin below
            connection.execute("PRAGMA secure_delete=ON")

        def lock(connection: Any) -> None:
            # A transaction that reads before it writes would fail if another one wrote meanwhile.
            connection.exec_driver_sql("BEGIN IMMEDIATE")

        sa.event.listen(engine, "connect", overwrite_deleted)
        sa.event.listen(engine, "begin", lock)
        return engine

    def _unavailable(self, error: Exception) -> StreamopsError:
        """The error about a database that did not do as asked; without parameters and password."""
        cause = getattr(error, "orig", None) or error
        text = mask(str(cause).partition("\n")[0], secrets_of_database_url(self.url))
        return conditions.KEY_TABLE_UNAVAILABLE.error(got=f"{type(cause).__name__}: {text}")


def _lock(connection: Any, table: Any, subjects: Sequence[str] | None = None) -> list[str]:
    """Wait for others that change keys of subjects, by default of all, and make later ones wait.

    Returns the subjects that are locked. Others of the given ones are not in the table, or were created since.

    The first version of a subject, which is never deleted, stands for all of its versions. The next statement
    sees what the others have committed: one that waits for a row does not see rows that were added meanwhile.
    """
    sa = _sqlalchemy()
    if connection.dialect.name == "sqlite":
        return list(subjects or ())  # a transaction has the whole file
    # In one order, so that no two of them wait for each other.
    order = table.c.subject.collate("C")
    first = sa.select(table.c.subject).where(table.c.version == 1).order_by(order)
    conditions = [sa.true()] if subjects is None else map(table.c.subject.in_, _chunks(subjects))
    locked: list[str] = []
    for condition in conditions:
        locked += connection.execute(first.where(condition).with_for_update()).scalars()
    return locked


def _create(
    connection: Any, table: Any, subjects: Sequence[str], wrapping: Wrapping | None
) -> list[Entry]:
    """The entries of subjects, created where there are none."""
    sa = _sqlalchemy()
    entries = sa.select(table.c.subject, table.c.version, table.c.key)
    rows: list[Entry] = []
    for some in _chunks(subjects):
        known = [tuple(r) for r in connection.execute(entries.where(table.c.subject.in_(some)))]
        present = {row[0] for row in known}
        missing = [text for text in some if text not in present]
        if missing:
            created = [_entry(text, 1, wrapping) for text in missing]
            connection.execute(_insert(connection)(table).on_conflict_do_nothing(), created)
            # Read back: another writer may have been first.
            again = connection.execute(entries.where(table.c.subject.in_(missing)))
            known += [tuple(row) for row in again]
        rows += known
    return rows


def _entry(subject: str, version: int, wrapping: Wrapping | None) -> dict[str, Any]:
    key = new_key()
    stored = key if wrapping is None else wrapping.wrap(subject, key)
    return {"subject": subject, "version": version, "key": stored, "erased_at": None}


def _insert(connection: Any) -> Any:
    """The insert statement of the dialect, which can skip rows that exist."""
    name = connection.dialect.name
    return importlib.import_module(f"sqlalchemy.dialects.{name}").insert


def _chunks(subjects: Sequence[str]) -> Iterator[Sequence[str]]:
    for start in range(0, len(subjects), _AT_A_TIME):
        yield subjects[start : start + _AT_A_TIME]


def _parse_subjects(subjects: Subjects) -> list[str]:
    """Subjects in their form as text, sorted; without those that PostgreSQL cannot store."""
    is_one = isinstance(subjects, str | bytes) or not isinstance(subjects, Iterable)
    listed: list[Any] = [subjects] if is_one else list(subjects)  # type: ignore[arg-type]
    return sorted({text for text in map(_subject_text, listed) if "\0" not in text})


def _subject_text(subject: Any) -> str:
    """The form of a subject that Spark's cast to text gives, too. Another one would be nobody's."""
    try:
        is_number = isinstance(subject, int | np.integer) and not isinstance(subject, bool)
        text: str | None = str(_to_bigint(subject)) if is_number else _to_text(subject)
        got = "None"
    except Refused as error:
        text, got = None, str(error)
    if text is not None:
        return text
    raise conditions.NOT_A_SUBJECT.error(got=got)


def _to_frame(spark: SparkSession, rows: Sequence[Entry]) -> DataFrame:
    columns: Any = list(zip(*rows, strict=True)) or [()] * len(KEYS)
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, KEYS, strict=True)], schema=KEYS)
    return create_frame(spark, table, spark_schema(KEYS))


def _sqlalchemy() -> Any:
    module = require_package("sqlalchemy", package="sqlalchemy", extra="erasure")
    importlib.import_module("sqlalchemy.event")
    return module
