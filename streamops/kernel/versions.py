"""All differences between the supported versions of Spark and Arrow.

Each function says since which version it is not needed. No other module compares versions, or looks
for a name that some version lacks. Spark is not imported here, only looked up: the kernel runs without it.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from streamops.kernel import conditions
from streamops.kernel.errors import RequirementError

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import DataType, StructType

_STATE_MESSAGES = "pyspark.sql.streaming.proto.StateMessage_pb2"
_NEED_MAPS_AS_PAIRS = "maps_as_pydicts" not in (pa.Array.to_pylist.__doc__ or "")


class Missing:
    """The base of what stands for a class that this version of Spark lacks: it has no instances."""


def spark_class(module: str, name: str) -> Any:
    """A class of Spark by its module in ``pyspark``, or a :class:`Missing` one.

    ``sql.types.VariantType``, ``sql.streaming.stateful_processor`` and ``sql.datasource`` are there since
    Spark 4.0.
    """
    return _attribute(module, name) or type(name, (Missing,), {})


def _has_class(module: str, name: str) -> bool:
    return _attribute(module, name) is not None


def _attribute(module: str, name: str) -> Any:
    with suppress(ImportError):
        return getattr(importlib.import_module(f"pyspark.{module}"), name, None)
    return None


def too_old(what: str, since: str, instead: str) -> RequirementError:
    """The error for what only later versions of Spark can do."""
    version = importlib.import_module("pyspark").__version__
    return conditions.SPARK_TOO_OLD.error(
        what=what, since=since, instead=instead, got=f"Spark {version}"
    )


def require_python_sources(what: str, instead: str) -> None:
    """Refuse what needs sources in Python, which Spark has since 4.0.

    Raises
    ------
    RequirementError
        ``VERSION_NOT_SUPPORTED``.
    """
    if not has_python_sources():
        raise too_old(what, "4.0", instead)


def has_python_sources() -> bool:
    """Whether sources can be written in Python: since Spark 4.0."""
    return _has_class("sql.datasource", "DataSource")


def has_scripted_sources() -> bool:
    """Whether a source in Python can end an ``availableNow`` run by itself: since Spark 4.2."""
    return _has_class("sql.streaming.datasource", "SupportsTriggerAvailableNow")


def reports_every_micro_batch() -> bool:
    """Whether the progress has ``observedMetrics`` of micro-batches without new rows: since Spark 4.0."""
    return has_python_sources()  # since the same version


def require_state_reader() -> None:
    """Refuse a Spark that cannot read state stores, as Spark can since 4.0.

    Raises
    ------
    RequirementError
        ``VERSION_NOT_SUPPORTED``.
    """
    if not has_transform():
        raise too_old("a reader of state stores", "4.0", "a copy of the checkpoint there")


# --- State APIs


def has_transform() -> bool:
    """Whether Spark has ``transformWithStateInPandas``: since Spark 4.0."""
    return _has_class("sql.streaming.stateful_processor", "StatefulProcessor")


def state_messages_problem() -> tuple[str, str] | None:
    """Why the messages of ``transformWithStateInPandas`` cannot be imported, and the protobuf that they need.

    Only the attempt tells: platforms generate them anew, for the protobuf that they have.
    """
    try:
        importlib.import_module(_STATE_MESSAGES)
    except Exception as error:  # protobuf has its own class for a version that does not fit
        why = f"{type(error).__name__}: {error}".splitlines()[0]
    else:
        return None
    spec = find_spec(_STATE_MESSAGES)
    source = "" if spec is None or spec.origin is None else Path(spec.origin).read_text()
    generated = re.search(r"Protobuf Python Version: ([\d.]+)", source)
    return why, f"protobuf>={generated[1]}" if generated else "protobuf"


def progress_of(reported: Any) -> Any:
    """The progress of a micro-batch as an object; not needed since Spark 4.0, where it is one."""
    if type(reported) is not dict:  # later, the class is a dict, too
        return reported
    return _attribute("sql.streaming.listener", "StreamingQueryProgress").fromJson(reported)


# --- Spark and Arrow


def in_utc(convert: Callable[..., Any]) -> dict[str, Any]:
    """The arguments with which a conversion of PySpark to Arrow returns timestamps in UTC.

    ``timezone`` since Spark 4.3, ``timestamp_utc`` since 4.0. Spark 3.5 always returns UTC.
    """
    known = inspect.signature(convert).parameters
    if "timezone" in known:
        return {"timezone": "UTC"}
    return {"timestamp_utc": True} if "timestamp_utc" in known else {}


def to_arrow(frame: Any) -> pa.Table:
    """``DataFrame.toArrow``; not needed since Spark 4.0."""
    if hasattr(type(frame), "toArrow"):
        return frame.toArrow()
    return collect_arrow(frame)


def collect_arrow(frame: Any) -> pa.Table:
    """What :func:`to_arrow` does before Spark 4.0."""
    schema = _schema(frame.schema)
    if hasattr(type(frame), "_collect_as_arrow"):
        batches = frame._collect_as_arrow()
        table = pa.Table.from_batches(batches) if batches else schema.empty_table()
    else:  # Connect
        table, _ = frame._session.client.to_table(frame._plan.to_proto(frame._session.client))
    # By position: names may be there twice. It has the time zone of the session.
    return pa.table(
        [part.cast(of.type) for part, of in zip(table.columns, schema, strict=True)], schema=schema
    )


def create_frame(session: SparkSession, table: pa.Table, schema: StructType) -> DataFrame:
    """``createDataFrame`` of an Arrow table; not needed since Spark 4.0."""
    if has_python_sources():  # since the same version
        return session.createDataFrame(table, schema)
    columns = zip(table.columns, _schema(schema), strict=True)
    table = pa.table([part.cast(of.type) for part, of in columns], names=table.column_names)
    cell = [(_to_cell(table)["packed"][0],)]
    return session.createDataFrame(cell, "packed binary").mapInArrow(_from_cells, schema)


def _schema(schema: Any) -> pa.Schema:
    to_arrow_type = _attribute("sql.pandas.types", "to_arrow_type")
    return pa.schema(
        [pa.field(of.name, to_arrow_type(of.dataType, **in_utc(to_arrow_type))) for of in schema]
    )


def apply_in_arrow(groups: Any, run: Callable[..., pa.Table], schema: Any) -> Any:
    """``applyInArrow`` of grouped frames; not needed since Spark 4.0.

    Before, pandas has the columns of the groups, which suits binary and text columns; the result
    goes through one cell per group, as Arrow's bytes.
    """
    if hasattr(groups, "applyInArrow"):
        return groups.applyInArrow(run, schema)

    def packed(*frames: Any) -> Any:
        return _to_cell(run(*(pa.Table.from_pandas(of, preserve_index=False) for of in frames)))

    def of_one(frame: Any) -> Any:
        return packed(frame)

    def of_two(left: Any, right: Any) -> Any:
        return packed(left, right)

    function = of_one if len(inspect.signature(run).parameters) == 1 else of_two
    return groups.applyInPandas(function, "packed binary").mapInArrow(_from_cells, schema)


def _to_cell(table: pa.Table) -> Any:
    pandas: Any = importlib.import_module("pandas")
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return pandas.DataFrame({"packed": [sink.getvalue().to_pybytes()]})


def _from_cells(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for cell in batch.column(0):
            yield from pa.ipc.open_stream(cell.as_buffer())


def has_arrow_functions() -> bool:
    """Whether functions of Arrow columns can have arguments of any type: since Spark 4.1."""
    return _has_class("sql.pandas.functions", "arrow_udf")


def arrow_udf(
    function: Callable[..., pa.Array], dtype: Any, inputs: Sequence[pa.DataType] | None
) -> Callable[..., Column]:
    """``pyspark.sql.functions.arrow_udf``; not needed since Spark 4.1.

    Before, pandas has the arguments. It changes values of other types than text and binary: nulls, and
    integers next to them. So only these `inputs` are accepted; None is another type.

    Raises
    ------
    RequirementError
        ``VERSION_NOT_SUPPORTED``.
    """
    make: Any = _attribute("sql.pandas.functions", "arrow_udf")
    if make is None and not (inputs and all(map(_is_text_or_binary, inputs))):
        raise too_old("functions of Arrow columns", "4.1", "it in a batch job on such a Spark")
    udf: Callable[..., Column] = (
        make(function, dtype) if make else _pandas_udf(function, dtype, inputs or ())
    )
    return udf


def _is_text_or_binary(dtype: pa.DataType) -> bool:
    return dtype in {pa.string(), pa.large_string(), pa.binary(), pa.large_binary()}


def _pandas_udf(
    function: Callable[..., pa.Array], dtype: Any, inputs: Sequence[pa.DataType]
) -> Any:
    pandas: Any = importlib.import_module("pandas")

    def run(*columns: Any) -> Any:
        pairs = zip(columns, inputs, strict=True)
        arrays = [pa.Array.from_pandas(part, type=of) for part, of in pairs]
        found = function(*arrays)
        if isinstance(found, pa.ChunkedArray):
            found = found.combine_chunks()
        if pa.types.is_struct(found.type):
            found = table_of(found)
        return found.to_pandas(integer_object_nulls=True)

    is_struct = hasattr(dtype, "fields")
    run.__annotations__ = {
        "columns": pandas.Series,
        "return": pandas.DataFrame if is_struct else pandas.Series,
    }
    run.__name__ = function.__name__
    return _attribute("sql.pandas.functions", "pandas_udf")(run, dtype)


def parse_type(schema: str) -> DataType:
    """``DataType.fromDDL``; not needed since Spark 4.0."""
    types: Any = importlib.import_module("pyspark.sql.types")
    parse = getattr(types.DataType, "fromDDL", None) or types._parse_datatype_string
    found: DataType = parse(schema)
    return found


def has_try_cast() -> bool:
    """Whether columns have ``try_cast``: since Spark 4.0."""
    return hasattr(_attribute("sql", "Column"), "try_cast")


def try_cast(column: Column, dtype: DataType | str) -> Column:
    """``Column.try_cast``; not needed since Spark 4.0."""
    if hasattr(type(column), "try_cast"):  # a column itself has any name, as a field of its value
        return column.try_cast(dtype)
    from pyspark.sql import functions as F

    name = dtype if isinstance(dtype, str) else dtype.simpleString()
    # Only SQL has it there. A cast of a lambda's argument can be applied to any column.
    cast = F.expr("item -> try_cast(item AS " + name + ")")
    return F.call_function("transform", F.array(column), cast)[0]


def is_valid_utf8(text: Column) -> Column:
    """``is_valid_utf8``; not needed since Spark 4.0. Null for null."""
    from pyspark.sql import functions as F

    if hasattr(F, "is_valid_utf8"):
        return F.is_valid_utf8(text)
    given = text.cast("binary")
    return F.encode(F.decode(given, "UTF-8"), "UTF-8") == given


def try_validate_utf8(text: Column) -> Column:
    """``try_validate_utf8``; not needed since Spark 4.0."""
    from pyspark.sql import functions as F

    if hasattr(F, "try_validate_utf8"):
        return F.try_validate_utf8(text)
    return F.when(is_valid_utf8(text), text)


# --- Arrow


def is_text(dtype: pa.DataType) -> bool:
    """Whether values are text; views of strings are there since Arrow 16."""
    is_view = getattr(pa.types, "is_string_view", pa.types.is_string)
    return any(test(dtype) for test in (pa.types.is_string, pa.types.is_large_string, is_view))


def table_of(array: pa.StructArray) -> pa.Table:
    """``pa.Table.from_struct_array``; not needed since Arrow 15."""
    if hasattr(pa.Table, "from_struct_array"):
        return pa.Table.from_struct_array(array)
    return pa.Table.from_batches([pa.RecordBatch.from_struct_array(array)])


def decimals_as_integers(schema: pa.Schema) -> dict[str, bool]:
    """The option by which Parquet's writer stores small decimals as integers; Arrow has it since 17.

    Raises
    ------
    RequirementError
        ``VERSION_NOT_SUPPORTED``: the schema has decimals, and Arrow is older.
    """
    writer = importlib.import_module("pyarrow.parquet").ParquetWriter
    if "store_decimal_as_integer" in (writer.__doc__ or ""):
        return {"store_decimal_as_integer": True}
    found = [field.name for field in schema if "decimal" in str(field.type)]
    if found:
        got = f"pyarrow {pa.__version__}, and decimals in {', '.join(found)}"
        raise conditions.ARROW_TOO_OLD.error(
            what="decimals as integers in Parquet files",
            since="17",
            instead='sinks.iceberg(..., writer="spark")',
            got=got,
        )
    return {}


def require_whole_positions(what: str, instead: str) -> None:
    """Refuse ``applyInPandasWithState`` where Spark cuts its groups at positions that are floats.

    Spark 3.5 and 4.2 do, once a group has several rows. Arrow refuses floats since 26.

    Raises
    ------
    RequirementError
        ``VERSION_NOT_SUPPORTED``.
    """
    with suppress(TypeError):
        pa.RecordBatch.from_pydict({"n": [1]}).slice(0.0, 1.0)
        return
    reader = _attribute("sql.pandas.serializers", "ApplyInPandasWithStateSerializer")
    try:
        source = "" if reader is None else inspect.getsource(reader)
    except OSError:  # its source is not installed
        return
    if re.search(r'= state_info_col\["startOffset"\]', source):
        raise conditions.ARROW_TOO_NEW.error(
            what=what, before="26", instead=instead, got=f"pyarrow {pa.__version__}"
        )


def has_views() -> bool:
    """Whether Arrow has texts as views, which other libraries pass: since Arrow 16."""
    return hasattr(pa, "string_view")


def require_views(what: str, instead: str) -> None:
    """Refuse what needs texts as views.

    Raises
    ------
    RequirementError
        ``VERSION_NOT_SUPPORTED``.
    """
    if not has_views():
        raise conditions.ARROW_TOO_OLD.error(
            what=what, since="16", instead=instead, got=f"pyarrow {pa.__version__}"
        )


def require_version(package: str, since: str, *, extra: str) -> None:
    """Refuse a version of an optional package that does not do what streamops needs.

    Raises
    ------
    RequirementError
        ``VERSION_NOT_SUPPORTED``.
    """
    found = importlib.metadata.version(package)
    if _numbers_of(found) < _numbers_of(since):
        raise conditions.PACKAGE_TOO_OLD.error(
            package=package, since=since, extra=extra, got=f"{package} {found}"
        )


def _numbers_of(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)[:3]]


def pylist(values: Any) -> list[Any]:
    """``to_pylist`` with maps as dicts; not needed since Arrow 20."""
    if not _NEED_MAPS_AS_PAIRS:
        return list(values.to_pylist(maps_as_pydicts="strict"))
    if isinstance(values, pa.Table):
        columns = [_dicts_of(part) for part in values.columns]
        return [
            dict(zip(values.column_names, row, strict=True)) for row in zip(*columns, strict=True)
        ]
    return _dicts_of(values)


def _dicts_of(values: Any) -> list[Any]:
    found = values.to_pylist()
    return [_with_dicts(item, values.type) for item in found] if _has_map(values.type) else found


def _has_map(dtype: pa.DataType) -> bool:
    return pa.types.is_map(dtype) or any(
        _has_map(dtype.field(at).type) for at in range(dtype.num_fields)
    )


def _with_dicts(value: Any, dtype: pa.DataType) -> Any:
    """A value of ``to_pylist``, in which maps are lists of pairs."""
    if value is None or not _has_map(dtype):
        return value
    if pa.types.is_map(dtype):
        pairs = dict((key, _with_dicts(item, dtype.item_type)) for key, item in value)
        if len(pairs) < len(value):
            message = "Encountered duplicate keys in a map"
            raise KeyError(message)
        return pairs
    if pa.types.is_struct(dtype):
        return {of.name: _with_dicts(value[of.name], of.type) for of in dtype}
    return [_with_dicts(item, dtype.value_type) for item in value]
