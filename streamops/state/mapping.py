"""The stored state of an operator, mapped to an operator with other parameters. No session is needed.

The parameters of the state are first written with the new names of columns and aggregates, and with wider integers. What
still differs is mapped by the core (``Core.adapt``), as a restart does it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pyarrow as pa

from streamops.kernel.adapting import may_change
from streamops.kernel.codec import StoredFrame, changed_parameters
from streamops.kernel.core import Identity, State
from streamops.kernel.lag import without_lag
from streamops.kernel.placement import ByKey, upgrade
from streamops.kernel.segments import INDEX
from streamops.spark.step import ShardStep
from streamops.state import conditions

_INTEGERS = ["int8", "int16", "int32", "int64"]
_TEXT = re.compile(r"'((?:[^'\\]|\\.)*)'")
_SQL = re.compile(
    r"""'(?:[^'\\]|\\.)*' | "(?:[^"\\]|\\.)*" | `((?:[^`]|``)+)` | (?<![\w.])([^\W\d]\w*)(?!\w|\s*\()""",
    re.VERBOSE,
)
"""Strings, and the names of columns: not of functions, nor of fields of structs."""
_NUMBERED = re.compile(r"(?:c|column|value)\.\d+")
_CHOICES = {
    *(
        "allow_exact",
        "default_operator",
        "direction",
        "early",
        "grid",
        "history",
        "how",
        "late_versions",
    ),
    *("matches", "operator", "pattern", "skip", "stragglers", "too_late", "unit", "week_start"),
    *("when_longer", "zone"),
}
"""Parameters without names of columns."""
_BY_NAME = {"columns", "documents", "facts", "left", "right", "table"}
"""Parameters with the columns of stored rows, in the order of their names."""


@dataclass(frozen=True, slots=True)
class Migration:
    """From a stored state to that of the operator that continues.

    Parameters
    ----------
    step : ShardStep
        The step of the operator that continues.
    rename : mapping of str to str
        The new names of stored columns and aggregates.
    """

    step: ShardStep[Any]
    rename: Mapping[str, str]

    @property
    def identity(self) -> Identity:
        """The parameters that the new state depends on."""
        found: Identity = json.loads(json.dumps(self.step.spec.identity))
        return found

    def read(
        self, frame: StoredFrame, watermark: int | None, *, is_segment: bool = False
    ) -> dict[str, pa.Table]:
        """The tables of a stored frame or segment, as those of the operator that continues.

        ``watermark`` is that of the state. The parameters of a segment are not compared: those of the state
        with its index were, after each change.

        Raises
        ------
        StateFormatError
            ``STATE_PARAMETERS``: the state does not have what the operator needs.
        """
        core, spec, wanted = self.step.core, self.step.spec, self.identity
        stored, found = upgrade(
            core.placement, frame.format, core.STATE, frame.identity, frame.tables()
        )
        names = self._rename(stored)
        changed = changed_parameters(names.identity, wanted)
        changed -= may_change(frame.layout, changed, names.identity, wanted)
        if changed and not is_segment:
            raise _not_stored(changed, stored, wanted)
        tables = {
            name: self._rename_columns(name, table, stored, names) for name, table in found.items()
        }
        index = {INDEX: tables.pop(INDEX)} if INDEX in tables else {}
        if names.identity != wanted:
            tables = dict(core.adapt(spec, names.identity, tables, watermark))
        return {**{name: self._conform(name, table) for name, table in tables.items()}, **index}

    def require_used(self, stored: Identity) -> None:
        """Refuse names that the state does not have, or that do not become the new ones.

        Raises
        ------
        SpecError
            ``PARAMETER_WITHOUT_EFFECT``, ``DUPLICATE_COLUMN``.
        """
        for old in self.unused(stored):
            raise conditions.RENAME_WITHOUT_EFFECT.error(
                parameters=json.dumps(stored), got=f"rename={{{old!r}: {self.rename[old]!r}}}"
            )
        names = [entry[0] for entry in self._rename(stored).identity.get("agg", ())]
        if len(set(names)) < len(names):
            raise conditions.RENAMED_TWICE.error(got=f"rename={dict(self.rename)!r}")

    def unused(self, stored: Identity) -> list[str]:
        """The names that change nothing, or to what is neither a column nor an aggregate."""
        known = {name for of in self.step.spec.inputs for name in of.schema.names}
        known |= {entry[0] for entry in self.identity.get("agg", ())}
        found, whole = [], self._rename(stored).identity
        for old, new in self.rename.items():
            others = {name: to for name, to in self.rename.items() if name != old}
            without = replace(self, rename=others)._rename(stored).identity
            if new not in known or without == whole:
                found.append(old)
        return found

    def moves(self, stored: Identity) -> bool:
        """Whether keys get other hashes, so that they belong to other shards."""
        return self._rename(stored).has_wider

    def deadline(self, states: Iterable[State]) -> int | None:
        """The first of the deadlines of mapped states."""
        core, found = self.step.core, []
        for state in states:
            spec, opened, _ = core.attune(self.step.spec, without_lag(state)[0], ())
            found.append(core.next_deadline(spec, opened))
        return min((at for at in found if at is not None), default=None)

    def _rename(self, stored: Identity) -> _Renamed:
        can_move = self.step.core.placement.redistribute is None
        columns = [{*of.schema.names} for of in self.step.spec.inputs]
        taken = {old for old, new in self.rename.items() if any({old, new} <= of for of in columns)}
        return _Renamed.of(stored, self.identity, self.rename, taken, can_move=can_move)

    def _rename_columns(
        self, name: str, table: pa.Table, stored: Identity, names: _Renamed
    ) -> pa.Table:
        """The columns of a table under their new names, in the order of the new parameters."""
        rule = self.step.core.placement.tables.get(name)
        if isinstance(rule, ByKey) and rule.columns is not None:
            before, after = list(rule.columns(stored)), list(rule.columns(names.identity))
            if len(before) == len(after):
                renamed = [new if new in after else old for old, new in self._pairs(before)]
                order = [renamed.index(column) for column in after]
                order += range(len(after), table.num_columns)
                return pa.table(
                    [table.column(at) for at in order],
                    schema=pa.schema(
                        [
                            table.schema.field(at).with_name(column)
                            for at, column in zip(order, table.column_names, strict=True)
                        ]
                    ),
                )
        if names.reordered and any(map(_NUMBERED.fullmatch, table.column_names)):
            raise _not_stored(names.reordered, stored, self.identity)
        wanted = self.step.core.layout(self.step.spec).get(name)
        if wanted is None:
            return table
        pairs = self._pairs(table.column_names)
        new_names = [new if new in wanted.names else old for old, new in pairs]
        if len({*new_names}) < len(new_names):  # the name of a column that stays
            there = {*wanted.names} - {*table.column_names}
            new_names = [new if new in there else old for old, new in pairs]
        return table.rename_columns(new_names)

    def _pairs(self, columns: Sequence[str]) -> list[tuple[str, str]]:
        """Each column of a table, and its new name; the columns of stored rows may have the prefix ``row.``."""
        return [(name, _prefixed(name, self.rename)) for name in columns]

    def _conform(self, name: str, table: pa.Table) -> pa.Table:
        """A table with the types of the operator that continues, and in the order of its columns."""
        layout = self.step.core.layout(self.step.spec)
        fields = layout[name] if name in layout else [of for t in layout.values() for of in t]
        types = {of.name: of.type for of in reversed([*fields])}
        for at, column in enumerate(table.schema):
            dtype = types.get(column.name, column.type)
            if dtype != column.type:
                assert _is_wider(str(column.type), str(dtype)), (column, dtype)
                table = table.set_column(at, column.with_type(dtype), table.column(at).cast(dtype))
        if name in layout and {*layout[name].names} == {*table.column_names}:
            return table.select(layout[name].names)
        return table


@dataclass(slots=True)
class _Renamed:
    """Stored parameters, with the names and types of those that are wanted, where they mean the same."""

    rename: Mapping[str, str]
    taken: Collection[str]
    """Old names that the operator that continues has for other columns, such as those of two that are swapped."""
    can_move: bool
    identity: Identity = field(default_factory=dict)
    has_wider: bool = False
    reordered: set[str] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        stored: Identity,
        wanted: Identity,
        rename: Mapping[str, str],
        taken: Collection[str],
        *,
        can_move: bool,
    ) -> _Renamed:
        found = cls(rename, taken, can_move)
        found.identity = {
            name: found._aggregates(value, wanted[name])
            if name == "agg" and name in wanted
            else found._value(value, wanted.get(name), name)
            for name, value in stored.items()
        }
        return found

    def _value(self, stored: Any, wanted: Any, parameter: str) -> Any:
        match stored, wanted:
            case str(), str() if parameter in _CHOICES:
                return stored
            case str(), str():
                return self._text(stored, wanted)
            case [str(name), str(dtype)], [str(new), str(other)] if _is_wider(dtype, other):
                names = {self.rename.get(name, name), *({name} - {*self.taken})}
                if self.can_move and new in names:
                    self.has_wider = True
                    return wanted
            case list(), list() if len(stored) == len(wanted):
                found = [self._value(*of, parameter) for of in zip(stored, wanted, strict=True)]
                if found != wanted and parameter in _BY_NAME and all(map(_is_column, stored)):
                    return self._columns(found, stored, wanted, parameter)
                return found
            case dict(), dict():
                return {
                    key: self._value(of, wanted.get(key), parameter) for key, of in stored.items()
                }
        return stored

    def _columns(
        self, found: list[Any], stored: list[Any], wanted: list[Any], parameter: str
    ) -> list[Any]:
        """Columns in the order of their names, which new names may change."""
        renamed = sorted([self.rename.get(name, name), dtype] for name, dtype in stored)
        pairs = [*zip(renamed, wanted, strict=True)]
        is_wider = [self.can_move and _is_wider(one[1], other[1]) for one, other in pairs]
        if stored != sorted(stored) or not all(
            one == other or (one[0] == other[0] and wider)
            for (one, other), wider in zip(pairs, is_wider, strict=True)
        ):
            return found
        self.reordered.add(parameter)
        self.has_wider |= any(is_wider)
        return wanted

    def _aggregates(self, stored: list[Any], wanted: list[Any]) -> list[Any]:
        """Aggregates by name, as they are wanted if only names differ."""
        by_name = {entry[0]: entry for entry in wanted}
        found = []
        for name, *parts in stored:
            new = self.rename.get(name, name)
            new = new if new in by_name else name
            others = by_name.get(new, [])[1:]
            if len(others) == len(parts):
                pairs = zip(parts[1:], others[1:], strict=True)
                columns = [other if other in self._texts(part) else part for part, other in pairs]
                parts, name = [self._text(parts[0], others[0]), *columns], new
            found.append([name, *parts])
        return found

    def _text(self, stored: str, wanted: str) -> str:
        """The wanted text, if it is the stored one with new names; without those that are taken, if it is unchanged."""
        if wanted == stored and self._with_names(stored, self.taken) != stored:
            return self._with_names(stored, self.rename)
        return wanted if wanted in self._texts(stored) else stored

    def _texts(self, text: Any) -> tuple[Any, ...]:
        """A text, and with new names: of an aggregate such as ``sum('v')``, or of a column such as ``v int64``."""
        if not isinstance(text, str):
            return (text,)
        name, _, dtype = text.rpartition(" ")
        typed = f"{self.rename.get(name, name)} {dtype}"
        return text, self._with_names(text, self.rename), typed

    def _with_names(self, text: str, old: Collection[str]) -> str:
        """A name, Spark SQL, or an expression over texts in quotes, with the new names of these columns."""
        if text in self.rename:
            return self.rename[text] if text in old else text

        def quoted(of: re.Match[str]) -> str:
            return repr(self._with_names(of[1], old))

        def named(of: re.Match[str]) -> str:
            name = of[2] if of[1] is None else of[1].replace("``", "`")
            if name is None or name not in old:
                return of[0]
            new = self.rename[name]
            return new if new.isidentifier() and of[1] is None else f"`{new.replace('`', '``')}`"

        found = _SQL.sub(named, text)
        return _TEXT.sub(quoted, text) if found == text else found


def _prefixed(column: str, rename: Mapping[str, str]) -> str:
    prefix = "row." if column.startswith("row.") else ""
    name = column.removeprefix(prefix)
    return prefix + rename.get(name, name)


def _is_column(value: Any) -> bool:
    """Whether a value of an identity is a column: its name, and its type."""
    return isinstance(value, list) and len(value) == 2 and all(isinstance(of, str) for of in value)


def _is_wider(dtype: str, other: str) -> bool:
    """Whether a type has all integers of another one, and more."""
    both = dtype in _INTEGERS and other in _INTEGERS
    return both and _INTEGERS.index(other) > _INTEGERS.index(dtype)


def _not_stored(changed: Iterable[str], stored: Identity, wanted: Identity) -> Exception:
    names = sorted(changed)
    return conditions.NOT_STORED.error(
        changed=", ".join(names),
        stored=", ".join(f"{name}={stored.get(name)!r}" for name in names),
        got=", ".join(f"{name}={wanted.get(name)!r}" for name in names),
    )
