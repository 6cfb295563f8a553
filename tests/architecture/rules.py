"""Architecture rules, checked on syntax trees: import direction and forbidden names.

    kernel <- changelog <- <family>/core <- <family>/*.py -> spark -> environment -> kernel

Run it by itself with ``python tests/architecture/rules.py``; nothing of streamops is imported.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

LIBRARY = "streamops"
EXAMPLES = "examples"
LONGEST_FILE = 600

# A folder of streamops/ that is not named here is a family of operators.
NOT_A_FAMILY = {"kernel", "changelog", "environment", "spark", "state", "testing"}

# Folders that users do not import from.
INTERNAL = {"kernel", "changelog", "environment", "spark"}

# A family may use the public names of another family, from its package.
PUBLIC_IMPORTS = {("changes", "streamops.aggregates"), ("patterns", "streamops.aggregates")}
# Event sourcing is a function per key.
BUILT_ON = {
    ("sourcing", "process"),
    ("sourcing", "process/core"),
    ("sourcing/core", "process/core"),
}
# Estimates of sketches are aggregates, imported from the module of each sketch.
MODULE_IMPORTS = {("aggregates", "sketches")}

# Names of the JVM gateway and of RDDs, which do not exist on Connect.
JVM = {"_jvm", "_jdf", "_jsparkSession", "_jsc", "_sc", "sparkContext", "SparkContext", "rdd"}
# The only file for classic sessions: it writes state stores.
CLASSIC_SESSION = {Path(LIBRARY, "state", "stores.py"), Path(LIBRARY, "sinks", "connectors.py")}
# The only files with different code for classic and Connect sessions.
BOTH_SESSIONS = {Path(LIBRARY, "spark", name) for name in ("identity.py", "metadata.py")}
# What looks Spark and pandas up when it is called, for the differences between their versions.
VERSIONS = Path(LIBRARY, "kernel", "versions.py")
# What checks the environment as a whole: it runs a query.
CHECKS_ENVIRONMENT = {"doctor", "smoke_query"}
# Modules with the classes of errors, which only a condition makes: their texts are data.
ERRORS = {f"{LIBRARY}.errors", f"{LIBRARY}.kernel.errors"}
PICKLES = {"pickle", "cloudpickle", "dill", "marshal", "shelve"}


def violations(root: Path) -> list[str]:
    """Return each violation in the library and the examples below ``root``: file, line, reason."""
    found = []
    files = [path for folder in (LIBRARY, EXAMPLES) for path in (root / folder).rglob("*.py")]
    for path in sorted(files):
        where = path.relative_to(root)
        text = path.read_text()
        tree = ast.parse(text, str(where))
        length = len(text.splitlines())
        if length > LONGEST_FILE:
            found.append(f"{where}:{length}: longer than {LONGEST_FILE} lines")
        for line, reason in (*wrong_imports(root, where, tree), *forbidden_uses(tree, where)):
            found.append(f"{where}:{line}: {reason}")
    # An import in the wrong direction often closes a cycle, too: one report is enough.
    return found or import_cycles(root)


def import_cycles(root: Path) -> list[str]:
    """Return a cycle of imports between the modules of the library, if there is one."""
    graph = {}
    for path in (root / LIBRARY).rglob("*.py"):
        where = path.relative_to(root)
        name = ".".join(where.with_suffix("").parts).removesuffix(".__init__")
        graph[name] = {module for _, module in imports(root, where, ast.parse(path.read_text()))}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [f"{LIBRARY}: import cycle: {' <- '.join(error.args[1])}"]
    return []


def layer_of(module: str) -> str:
    """Return the layer that a module of streamops belongs to."""
    package, *parts = module.split(".")
    if package == EXAMPLES:
        return EXAMPLES
    if not parts or parts[0] == "__main__":
        return "root"
    if parts[1:] == ["conditions"]:
        return "/".join(parts)
    if parts[0] == "environment" and parts[1:2] and parts[1] in CHECKS_ENVIRONMENT:
        return "doctor"
    if parts[0] in NOT_A_FAMILY:
        return parts[0]
    return "/".join(parts[:2]) if parts[1:2] == ["core"] else parts[0]


def may_import(importer: str, imported: str) -> bool:
    """Whether a module of one layer may import a module of another."""
    if imported in {"kernel/conditions", f"{importer.partition('/')[0]}/conditions"}:
        return True
    match importer:
        case _ if importer.endswith("/conditions"):  # texts of errors
            return imported == "kernel"
        case "root":
            return imported != EXAMPLES
        case "kernel":
            return imported == "kernel"
        case "changelog":
            return imported in {"kernel", "changelog"}
        case "environment":
            return imported in {"kernel", "environment"}
        case "doctor":
            return imported in {"kernel", "environment", "spark", "doctor"}
        case "spark":
            return imported in {"kernel", "changelog", "environment", "spark"}
        case "testing":
            return imported in {"kernel", "changelog", "environment", "spark", "testing"}
        case "plots":  # an operator runs over the rows of a picture
            return imported in {"kernel", "spark", "testing", "plots"}
        case "observe":  # it replays a key of a query from its checkpoint
            own = {"observe", "observe/core"}
            return imported in {"kernel", "environment", "spark", "state", "testing", *own}
        case "state":  # it knows the layouts of all cores
            return imported in {"kernel", "environment", "spark", "state"} or imported.endswith(
                "/core"
            )
        case "examples":  # the public interface only
            return imported not in INTERNAL and not imported.endswith("/core")
        case _ if importer.endswith("/core"):
            return imported in {"kernel", "changelog", importer}
        case family:
            own = {family, f"{family}/core"}
            return imported in {"kernel", "changelog", "environment", "spark", *own}


def is_pure(layer: str) -> bool:
    """Whether a layer must not import Spark and pandas."""
    return layer in {"kernel", "changelog"} or layer.endswith(("/core", "/conditions"))


def wrong_imports(root: Path, where: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each import in the wrong direction."""
    layer = layer_of(".".join(where.with_suffix("").parts).removesuffix(".__init__"))
    for line, name in imports(root, where, tree):
        top = name.split(".")[0]
        if is_pure(layer) and where != VERSIONS and top in {"pyspark", "pandas"}:
            yield line, f"{layer} must not import {top}"
        elif (
            top not in {LIBRARY, EXAMPLES}
            or (layer, name) in PUBLIC_IMPORTS
            or (layer, layer_of(name)) in MODULE_IMPORTS | BUILT_ON
        ):
            continue
        elif not may_import(layer, layer_of(name)):
            yield line, f"{layer} may not import {name}"


def imports(root: Path, where: Path, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield each module that a file imports anywhere, also under a condition."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                package = list(where.parts[:-1])
                base = package[: len(package) - level + 1] if level else []
                source = ".".join([*base, *([module] if module else [])])
                for alias in names:
                    member = f"{source}.{alias.name}"
                    yield node.lineno, member if is_module(root, member) else source
            case ast.Call(
                func=ast.Name(id="__import__" | "import_module")
                | ast.Attribute(attr="import_module"),
                args=[ast.Constant(value=str(name)), *_],
            ):
                yield node.lineno, name


def is_module(root: Path, name: str) -> bool:
    """Whether a dotted name is a module of the tree, not a member of one."""
    path = root.joinpath(*name.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


def forbidden_uses(tree: ast.Module, where: Path) -> Iterator[tuple[int, str]]:
    """Yield forbidden uses: the JVM gateway, pickles, evaluated text."""
    gateway = set() if where in {*BOTH_SESSIONS, *CLASSIC_SESSION} else JVM
    errors = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module in ERRORS
        for alias in node.names
        if alias.name[0].isupper() and alias.name != "Code"
    }
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)) if name in errors:
                yield node.lineno, f"{name}() instead of a condition of conditions.py"
            case ast.Attribute(attr=name) | ast.Name(id=name) if name in gateway:
                yield node.lineno, f"{name} does not exist in Spark Connect"
            case ast.Constant(value=str(name)) if name in gateway:
                yield node.lineno, f"{name} does not exist in Spark Connect"
            case ast.Import(names=names) if any(n.name.split(".")[0] in PICKLES for n in names):
                yield node.lineno, "state and messages are never pickled"
            case ast.ImportFrom(module=str(name)) if name.split(".")[0] in PICKLES:
                yield node.lineno, "state and messages are never pickled"
            case ast.Call(func=ast.Name(id="eval" | "exec" as name)):
                yield node.lineno, f"{name}() runs text as a program"
            case ast.Call(
                func=ast.Name(id="expr") | ast.Attribute(attr="expr" | "selectExpr"), args=args
            ) if any(isinstance(part, ast.JoinedStr) for arg in args for part in ast.walk(arg)):
                yield node.lineno, "a name put into SQL text breaks on quotes: build a Column"


if __name__ == "__main__":
    broken = violations(Path(__file__).parents[2])
    print(*broken, sep="\n")
    sys.exit(bool(broken))
