"""What the owner of an index has configured, and the mapping of the columns of rows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql import types as T

from streamops.sinks import conditions
from streamops.sinks.sink import columns_differ
from streamops.spark.columns import VARIANT

_SWITCHED_OFF: tuple[Any, ...] = (None, "_none", "standard", "false", False, [])
_SETTINGS = ("index.default_pipeline", "index.final_pipeline", "index.mode")
"""Settings with which the index changes, drops or moves documents."""
_WHOLE = {"enabled": True, "includes": [], "excludes": [], "mode": "stored"}
_BLOCKS = ("index.blocks.write", "index.blocks.read_only", "index.blocks.read")
_TEXT = {"type": "text", "fields": {"keyword": {"type": "keyword", "ignore_above": 256}}}
_FIELDS: list[tuple[type[T.DataType] | tuple[type[T.DataType], ...], dict[str, Any]]] = [
    (T.StringType, _TEXT),
    (T.IntegralType, {"type": "long"}),
    # The document has the exact value, the index the nearest one that it takes, or none.
    (T.FractionalType, {"type": "double", "ignore_malformed": True}),
    ((T.DateType, T.TimestampType, T.TimestampNTZType), {"type": "date", "ignore_malformed": True}),
    (T.BooleanType, {"type": "boolean"}),
    (T.BinaryType, {"type": "binary"}),
    (VARIANT, {"type": "object", "enabled": False}),
]
_OBJECT: dict[str, Any] = {"type": "object", "properties": {}}
_UNKNOWN = {"streamops": {"match_mapping_type": "long", "mapping": {"type": "double"}}}
"""Of a column whose type is not known, the first value could be the only one that is an integer."""


def require_one_index(found: Mapping[str, Any], name: str) -> Any:
    """Return the index behind a name. Refuse what cannot have the latest row of each key.

    Raises
    ------
    SinkError
        ``TARGET_KIND``, ``TARGET_REFUSED``.
    """
    problems = [f"an alias of {len(found)} indices"] * (len(found) != 1)
    for index in found.values():
        settings, mapping, stream = index["settings"], index["mappings"], index.get("data_stream")
        alias, source = index["aliases"].get(name, {}), mapping.get("_source", {})
        wrong = {
            f"a backing index of the data stream {stream}": stream,
            **{f"{n} {settings.get(n)!r}": settings.get(n) not in _SWITCHED_OFF for n in _SETTINGS},
            "required routing": mapping.get("_routing", {}).get("required"),
            f"_source {source}": any(source.get(n, of) not in (of, []) for n, of in _WHOLE.items()),
            "an alias that does not take writes": alias.get("is_write_index") is False,
            "an alias with routing": "index_routing" in alias,
        }
        problems += [text for text, is_wrong in wrong.items() if is_wrong]
        blocks = [n for n in _BLOCKS if settings.get(n) == "true"]
        if blocks and not problems:
            raise conditions.STORE_REFUSED.error(target="OpenSearch", got=", ".join(blocks))
    if problems:
        raise conditions.NOT_ONE_INDEX.error(index=name, got=", ".join(problems))
    return next(iter(found.values()))


def new_mapping(schema: T.StructType | None) -> dict[str, Any]:
    """The mapping of a new index."""
    mapping = {} if schema is None else missing_mapping({}, schema)
    mapping["dynamic_templates"] = [*mapping.get("dynamic_templates", []), _UNKNOWN]
    return {"date_detection": False, **mapping}


def missing_mapping(found: Mapping[str, Any], schema: T.StructType) -> dict[str, Any]:
    """What a mapping lacks for these columns, so that not the first row decides which types they have.

    Raises
    ------
    SinkError
        ``TARGET_COLUMNS``: the mapping is strict, and lacks a column.
    """
    templates: list[dict[str, Any]] = []
    wanted, known = _properties(schema, "", templates), found.get("properties", {})
    dynamic, given = str(found.get("dynamic", True)).lower(), found.get("dynamic_templates", [])
    new = _without(wanted, known)
    if dynamic == "strict" and new.keys() - known.keys():
        raise columns_differ([*new], [], [*known])
    # The owner decides.
    if dynamic != "true" or not all(n.startswith("streamops") for part in given for n in part):
        return {}
    more = [part for part in templates if part not in given]
    added = {"properties": new} if new else {}
    return {**added, "dynamic_templates": [*more, *given]} if more else added


def _properties(dtype: T.StructType, path: str, templates: list[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in dtype.fields:
        *parents, name = part.name.split(".")  # a name with dots is a path
        at = found
        for parent in parents:
            at = at.setdefault(parent, {"properties": {}}).setdefault("properties", {})
        at[name] = _field(part.dataType, f"{path}{part.name}", templates)
    return found


def _field(dtype: T.DataType, path: str, templates: list[dict[str, Any]]) -> dict[str, Any]:
    if isinstance(dtype, T.ArrayType):
        return _field(dtype.elementType, path, templates)
    if isinstance(dtype, T.StructType):
        return {"properties": _properties(dtype, f"{path}.", templates)}
    if isinstance(dtype, T.MapType):
        item = _field(dtype.valueType, f"{path}.*", templates)
        if "type" in item:
            templates.append({f"streamops {path}": {"path_match": f"{path}.*", "mapping": item}})
        return {"type": "object"}
    return next(
        (field for types, field in _FIELDS if isinstance(dtype, types)), {"type": "keyword"}
    )


def _without(wanted: Mapping[str, Any], known: Mapping[str, Any]) -> dict[str, Any]:
    """The fields that a mapping lacks, at any depth."""
    found = {}
    for name, field in wanted.items():
        if name not in known:
            found[name] = field
        elif "properties" in field and {**_OBJECT, **known[name], "properties": {}} == _OBJECT:
            inner = _without(field["properties"], known[name].get("properties", {}))
            found.update({name: {"properties": inner}} if inner else {})
    return found
