"""The errors that the source of streamops raises: code, class, cause and remedy, read from syntax trees.

An error is raised where it is detected, by a call such as ``SpecError("CODE", "what", where=..., got=...,
expected=..., fix="...")``. The texts are literals, f-strings, constants, or parameters of a function that
raises on behalf of its callers; this module follows them. What is only known when the error is raised
becomes a placeholder: ``{column}``.
"""

from __future__ import annotations

import ast
import itertools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
_DEEPEST = 6
_MOST_VARIANTS = 4  # of an inserted text; with more, a placeholder


@dataclass(frozen=True, order=True)
class Raised:
    """One situation in which an error is raised. ``module``: the file, relative to the package."""

    code: str
    error: str
    cause: str
    remedy: str
    module: str


@dataclass(frozen=True)
class Module:
    """A parsed file."""

    path: str
    tree: ast.Module

    @cached_property
    def parents(self) -> dict[ast.AST, ast.AST]:
        """The parent of every node."""
        return {child: node for node in ast.walk(self.tree) for child in ast.iter_child_nodes(node)}

    @cached_property
    def imports(self) -> dict[str, tuple[str, str]]:
        """Imported names: the module and the name there."""
        return {
            alias.asname or alias.name: (node.module or "", alias.name)
            for node in ast.walk(self.tree)
            if isinstance(node, ast.ImportFrom)
            for alias in node.names
        }

    def enclosing(self, node: ast.AST, types: Any) -> Any:
        """Return the innermost node of these types around a node."""
        above = self.parents.get(node)
        while above is not None and not isinstance(above, types):
            above = self.parents.get(above)
        return above


@dataclass(frozen=True)
class Scope:
    """Where names are looked up: a module, a node in it, and the arguments of enclosing functions."""

    module: Module
    node: ast.AST
    arguments: Mapping[str, tuple[ast.expr, Scope]] = field(default_factory=dict)

    @property
    def function(self) -> Function | None:
        """The innermost function."""
        if isinstance(self.node, ast.FunctionDef):
            return self.node
        found: Function | None = self.module.enclosing(self.node, ast.FunctionDef)
        return found


class Source:
    """All modules of a package."""

    def __init__(self, root: Path) -> None:
        self.modules = {
            path.relative_to(root.parent).with_suffix("").as_posix().replace("/", "."): Module(
                path.relative_to(root.parent).as_posix(), ast.parse(path.read_text())
            )
            for path in sorted(root.rglob("*.py"))
        }
        self.calls: dict[str, list[tuple[ast.Call, Module]]] = defaultdict(list)
        self.functions: dict[str, list[tuple[Function, Module]]] = defaultdict(list)
        self.errors = {"StreamopsError"}
        for module in self.modules.values():
            for node in ast.walk(module.tree):
                if isinstance(node, ast.Call):
                    self.calls[_last_name(node.func)].append((node, module))
                elif isinstance(node, ast.FunctionDef):
                    self.functions[node.name].append((node, module))
                elif isinstance(node, ast.ClassDef) and node.name.endswith(("Error", "NotFound")):
                    self.errors.add(node.name)

    def raised(self) -> list[Raised]:
        """Return every situation, sorted."""
        found = {
            situation
            for module in self.modules.values()
            for node in ast.walk(module.tree)
            if isinstance(node, ast.Call) and (error := self._error_class(node, module))
            for situation in self._situations(node, error, Scope(module, node), 0)
        }
        return sorted(found)

    def _error_class(self, call: ast.Call, module: Module) -> str:
        if _fix(call) is None or len(call.args) < 2:
            return ""
        if isinstance(call.args[0], ast.Attribute):  # raises an error again, with other facts
            return ""
        name = _last_name(call.func)
        if name == "__init__":
            owner = module.enclosing(call, ast.ClassDef)
            return str(owner.name) if owner is not None and owner.name in self.errors else ""
        return name if name in self.errors or name == "error" else ""

    def _situations(self, call: ast.Call, error: str, scope: Scope, depth: int) -> Iterator[Raised]:
        code, what = call.args[:2]
        fix = _fix(call)
        assert fix is not None
        function = scope.function
        owner = scope.module.enclosing(function, ast.ClassDef) if function else None
        used = {
            node.id for expr in (what, fix) for node in _tops(expr) if isinstance(node, ast.Name)
        }
        used |= {node.id for node in ast.walk(code) if isinstance(node, ast.Name)}
        # The fields of a dataclass are arguments of its calls.
        if "self" in used and owner is not None and owner.name not in self.errors:
            callers = self._calls_of(owner.name, scope.module)
            names = [_last_name(n.target) for n in owner.body if isinstance(n, ast.AnnAssign)]
            yield from self._for_callers(call, error, scope, depth, callers, names, "self.")
            return
        parameters = _parameters(function) if function else []
        wanted = used & set(parameters) - scope.arguments.keys()
        callers = self._calls_of(function.name, scope.module) if function and wanted else []
        if callers and depth < _DEEPEST and function:
            names = [name for name in parameters if name != "self"]
            yield from self._for_callers(call, error, scope, depth, callers, names, "")
            return
        yield from self._evaluate(call, error, scope)

    def _for_callers(
        self,
        call: ast.Call,
        error: str,
        scope: Scope,
        depth: int,
        callers: list[tuple[ast.Call, Module]],
        names: list[str],
        prefix: str,
    ) -> Iterator[Raised]:
        defaults = _defaults(scope.function) if scope.function and not prefix else {}
        for there in self._call_scopes(callers):
            caller = there.node
            assert isinstance(caller, ast.Call)
            given: dict[str, tuple[ast.expr, Scope]] = {
                name: (value, scope) for name, value in defaults.items()
            }
            given |= {name: (value, there) for name, value in zip(names, caller.args, strict=False)}
            given |= {k.arg: (k.value, there) for k in caller.keywords if k.arg}
            arguments = {f"{prefix}{name}": value for name, value in given.items()}
            for outer in self._outer_arguments(there, arguments, depth):
                bound = Scope(scope.module, scope.node, outer)
                yield from self._evaluate(call, error, bound)

    def _call_scopes(self, callers: list[tuple[ast.Call, Module]]) -> Iterator[Scope]:
        for caller, module in callers:
            given = [*caller.args, *(keyword.value for keyword in caller.keywords)]
            yield from self._rounds(Scope(module, caller), given)

    def _outer_arguments(
        self, there: Scope, arguments: Mapping[str, tuple[ast.expr, Scope]], depth: int
    ) -> Iterator[Mapping[str, tuple[ast.expr, Scope]]]:
        """Yield the arguments, with those of the callers of a function that only passes them on."""
        function = there.function
        passed = {
            name
            for name, (value, _) in arguments.items()
            if function and isinstance(value, ast.Name) and value.id in _parameters(function)
        }
        callers = self._calls_of(function.name, there.module) if function and passed else []
        relevant = passed & {"code", "what", "fix", "self.name"}
        if not (relevant and callers and depth < _DEEPEST and function):
            yield arguments
            return
        names = [name for name in _parameters(function) if name != "self"]
        for caller, module in callers:
            above = Scope(module, caller)
            given: dict[str, tuple[ast.expr, Scope]] = {
                name: (value, there) for name, value in _defaults(function).items()
            }
            given |= {name: (value, above) for name, value in zip(names, caller.args, strict=False)}
            given |= {k.arg: (k.value, above) for k in caller.keywords if k.arg}
            bound = Scope(there.module, there.node, given)
            yield {
                name: (value, bound if scope == there else scope)
                for name, (value, scope) in arguments.items()
            }

    def _calls_of(self, name: str, module: Module) -> list[tuple[ast.Call, Module]]:
        found = self.calls[name]
        here = [(call, where) for call, where in found if where is module]
        local = name.startswith("_") or len(self.functions[name]) > 1
        return here if local and here else found

    def _evaluate(self, call: ast.Call, error: str, scope: Scope) -> Iterator[Raised]:
        code, what = call.args[:2]
        fix = _fix(call)
        assert fix is not None
        if error == "error":  # a field that has the class
            error = _last_name(self.resolve(call.func, scope)[0][0])
        for keys in self._bound(code, what, scope):
            paired = isinstance(code, ast.IfExp) and isinstance(what, ast.IfExp)
            codes = self.texts(code, keys)
            causes = self.texts(what, keys)
            paired = paired or (len(codes) == len(causes) > 1)
            pairs = zip(codes, causes, strict=True) if paired else itertools.product(codes, causes)
            remedies = [text for text in self.texts(fix, keys) if text != "None"]
            for (one, cause), remedy in itertools.product(pairs, remedies):
                yield Raised(one, error, cause, remedy, scope.module.path)

    def _bound(self, code: ast.expr, what: ast.expr, scope: Scope) -> Iterator[Scope]:
        """Yield a scope for every value that the code depends on: a key of a table, or a loop variable."""
        table = self._table(what, scope)
        if table is not None and isinstance(code, ast.Name):
            resolved = [key for key, _ in self.resolve(code, scope)]
            given: list[ast.expr] = [key for key in resolved if isinstance(key, ast.Constant)]
            for key in given or [key for key in table.keys if key is not None]:
                yield Scope(scope.module, scope.node, {**scope.arguments, code.id: (key, scope)})
            return
        yield from self._rounds(scope, [code])

    def _rounds(self, scope: Scope, used: Sequence[ast.expr]) -> Iterator[Scope]:
        """Yield a scope for each round of a loop whose variables are used, or the scope itself."""
        names = {n.id for expr in used for n in ast.walk(expr) if isinstance(n, ast.Name)}
        loop = scope.module.enclosing(scope.node, ast.For)
        targets = [n.id for n in ast.walk(loop.target) if isinstance(n, ast.Name)] if loop else []
        found = self._loop_values(loop, scope) if names & set(targets) else iter(())
        rounds = [values for values in found if len(values) == len(targets)]
        for values in rounds:
            bound = {name: (value, scope) for name, value in zip(targets, values, strict=True)}
            yield Scope(scope.module, scope.node, {**scope.arguments, **bound})
        if not rounds:
            yield scope

    def _loop_values(self, loop: ast.For, scope: Scope) -> Iterator[list[ast.expr]]:
        """Yield what the targets of a loop over a literal are in each of its rounds."""
        iterable = loop.iter
        if isinstance(iterable, ast.Call) and _last_name(iterable.func) == "items":
            assert isinstance(iterable.func, ast.Attribute)
            for table, _ in self.resolve(iterable.func.value, scope):
                if isinstance(table, ast.Dict):
                    yield from ([k, v] for k, v in zip(table.keys, table.values, strict=True) if k)
            return
        for value, _ in self.resolve(iterable, scope):
            for element in value.elts if isinstance(value, ast.Tuple | ast.List) else ():
                yield element.elts if isinstance(element, ast.Tuple) else [element]

    def _table(self, what: ast.expr, scope: Scope) -> ast.Dict | None:
        for value, where in self._assigned(what, scope) if isinstance(what, ast.Name) else ():
            if isinstance(value, ast.Subscript):
                for found, _ in self.resolve(value.value, where):
                    if isinstance(found, ast.Dict):
                        return found
        return None

    def texts(self, node: ast.expr, scope: Scope, depth: int = 0) -> list[str]:
        """Return what an expression may be as text, with placeholders; each text once."""
        found: list[str] = []
        for value, where in self.resolve(node, scope):
            found += self._texts(value, where, depth)
        return list(dict.fromkeys(found))

    def _texts(self, node: ast.expr, scope: Scope, depth: int) -> list[str]:
        if depth > _DEEPEST:
            return [_placeholder(node)]
        if isinstance(node, ast.Constant):
            return [str(node.value)]
        if isinstance(node, ast.JoinedStr):
            parts = [self._part(part, scope, depth) for part in node.values]
            return ["".join(combined) for combined in itertools.product(*parts)]
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
            sides = (self.texts(side, scope, depth + 1) for side in (node.left, node.right))
            return [left + right for left, right in itertools.product(*sides)]
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "upper":
                return [text.upper() for text in self.texts(node.func.value, scope, depth + 1)]
            if isinstance(node.func, ast.Attribute) and node.func.attr == "format":
                inserted = _placeholder(node.args[0])
                texts = self.texts(node.func.value, scope, depth + 1)
                return [re.sub(r"\{(!r)?\}", inserted, text) for text in texts]
            return self._returned(node, scope, depth)
        return [_placeholder(node)]

    def _part(self, part: ast.expr, scope: Scope, depth: int) -> list[str]:
        if not isinstance(part, ast.FormattedValue):
            return [str(part.value)] if isinstance(part, ast.Constant) else [_placeholder(part)]
        found = self.texts(part.value, scope, depth + 1)
        if len(found) <= _MOST_VARIANTS and not any(text.startswith("{") for text in found):
            return [repr(text) if part.conversion == ord("r") else text for text in found]
        return [_placeholder(part.value)]

    def _returned(self, call: ast.Call, scope: Scope, depth: int) -> list[str]:
        """What a function of the package returns, if it is text."""
        name = _last_name(call.func)
        definitions = self.functions.get(name, [])
        if len(definitions) != 1 or isinstance(call.func, ast.Attribute):
            return [_placeholder(call)]
        ((function, module),) = definitions
        names = _parameters(function)
        given = dict(zip(names, ((value, scope) for value in call.args), strict=False))
        given |= {k.arg: (k.value, scope) for k in call.keywords if k.arg}
        inside = Scope(module, function, given)
        found = [
            text
            for node in ast.walk(function)
            if isinstance(node, ast.Return) and node.value is not None
            for text in self.texts(node.value, inside, depth + 1)
        ]
        return found or [_placeholder(call)]

    def resolve(self, node: ast.expr, scope: Scope, depth: int = 0) -> list[tuple[ast.expr, Scope]]:
        """Return the expressions that a name, attribute, choice or entry of a table stands for."""
        if depth > _DEEPEST:
            return [(node, scope)]
        nexts: list[tuple[ast.expr, Scope]] = []
        if isinstance(node, ast.IfExp):
            nexts = [(node.body, scope), (node.orelse, scope)]
        elif isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            first = self.resolve(node.values[0], scope, depth + 1)
            is_given = first and all(isinstance(value, ast.Constant) for value, _ in first)
            nexts = first if is_given else [(value, scope) for value in node.values]
        elif isinstance(node, ast.Name):
            nexts = self._assigned(node, scope)
        elif isinstance(node, ast.Attribute) and _last_name(node.value) == "self":
            nexts = (
                [scope.arguments[f"self.{node.attr}"]]
                if f"self.{node.attr}" in scope.arguments
                else []
            )
        if not nexts:
            return [(node, scope)]
        # An empty text is the absence of an optional argument.
        return [
            found
            for value, where in nexts
            if not (isinstance(value, ast.Constant) and value.value == "")
            for found in self.resolve(value, where, depth + 1)
        ]

    def _assigned(self, name: ast.Name, scope: Scope) -> list[tuple[ast.expr, Scope]]:
        if name.id in scope.arguments:
            return [scope.arguments[name.id]]
        function = scope.function
        while function is not None:
            found = list(_assignments(function, name.id))
            if found:
                return [(self._entry(value, index, scope), scope) for value, index in found]
            if name.id in _parameters(function):
                return []
            function = scope.module.enclosing(function, ast.FunctionDef)
        found = list(_assignments(scope.module.tree, name.id, deep=False))
        if found:
            return [(self._entry(value, index, scope), scope) for value, index in found]
        origin = self.modules.get(scope.module.imports.get(name.id, ("", ""))[0])
        if origin is not None:
            there = Scope(origin, origin.tree)
            original = scope.module.imports[name.id][1]
            return [(value, there) for value, _ in _assignments(origin.tree, original, deep=False)]
        return []

    def _entry(self, value: ast.expr, index: int | None, scope: Scope) -> ast.expr:
        """Return one element of an unpacked tuple, also of one that is looked up in a table."""
        if index is None:
            return value
        if isinstance(value, ast.Subscript):
            keys = [found for found, _ in self.resolve(value.slice, scope)]
            for table, _ in self.resolve(value.value, scope):
                if isinstance(table, ast.Dict):
                    for key, entry in zip(table.keys, table.values, strict=True):
                        if any(ast.dump(k) == ast.dump(key) for k in keys if key is not None):
                            value = entry
        return value.elts[index] if isinstance(value, ast.Tuple) else value


def _fix(call: ast.Call) -> ast.expr | None:
    """Return the argument `fix`; with ``**facts``, it is one of what a caller passes on."""
    given = {keyword.arg: keyword.value for keyword in call.keywords}
    return given.get("fix", ast.Name("fix") if None in given else None)


def _tops(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the expressions that are the whole text in some case."""
    if isinstance(node, ast.IfExp):
        yield from _tops(node.body)
        yield from _tops(node.orelse)
    elif isinstance(node, ast.BoolOp):
        for value in node.values:
            yield from _tops(value)
    elif isinstance(node, ast.Attribute):
        yield from _tops(node.value)
    elif isinstance(node, ast.Call) and _last_name(node.func) == "format":
        yield from _tops(node.func)
    else:
        yield node


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _parameters(function: Function) -> list[str]:
    arguments = function.args
    names = [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]
    return [*names, "fix"] if arguments.kwarg else names


def _defaults(function: Function) -> dict[str, ast.expr]:
    arguments = function.args
    positional = [*arguments.posonlyargs, *arguments.args]
    last = positional[len(positional) - len(arguments.defaults) :]
    found = {a.arg: value for a, value in zip(last, arguments.defaults, strict=True)}
    for argument, value in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True):
        if value is not None:
            found[argument.arg] = value
    return found


def _assignments(
    node: ast.AST, name: str, *, deep: bool = True
) -> Iterator[tuple[ast.expr, int | None]]:
    """Yield the values that are assigned to a name, and the index if a tuple is unpacked."""
    statements = ast.walk(node) if deep else ast.iter_child_nodes(node)
    for statement in statements:
        targets: list[ast.expr]
        if isinstance(statement, ast.AnnAssign) and statement.value is not None:
            targets, value = [statement.target], statement.value
        elif isinstance(statement, ast.Assign):
            targets, value = statement.targets, statement.value
        else:
            continue
        for target in targets:
            if isinstance(target, ast.Name) and target.id == name:
                yield value, None
            elif isinstance(target, ast.Tuple):
                for index, element in enumerate(target.elts):
                    if isinstance(element, ast.Name) and element.id == name:
                        if isinstance(value, ast.Tuple):
                            yield value.elts[index], None
                        else:
                            yield value, index


def _placeholder(node: ast.expr) -> str:
    """Return the name of what is inserted: the last name of a simple expression, else the first variable."""
    if isinstance(node, ast.Subscript):
        return _placeholder(node.value)
    if isinstance(node, ast.Attribute):
        return f"{{{node.attr.strip('_')}}}"
    names = [n.id for n in ast.walk(node) if isinstance(n, ast.Name)]
    if isinstance(node, ast.Call):
        inner = [*node.args, *(k.value for k in node.keywords)]
        names = [n.id for a in inner for n in ast.walk(a) if isinstance(n, ast.Name)] or names
    return f"{{{names[0].strip('_')}}}" if names else "..."
