"""The extras of the installed package: which are installed, and whether their packages are recent enough."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import metadata
from typing import NamedTuple

from streamops.environment.requirements import installed_version, numbers

# What one works on the library with; and what a runtime has without a distribution that pip knows.
_NOT_LISTED = {"all", "bench", "demo", "dev", "docs", "notebook", "test"}
_OF_SPARK = {"connect", "java", "spark"}


class Extra(NamedTuple):
    """An extra.

    Parameters
    ----------
    name : str
        Its name.
    packages : dict of str to str
        The installed version of each package that it names; empty if it is missing.
    is_complete : bool
        Whether all of them are installed, and what they need for it.
    problems : list of str
        The requirements that are not met although the package is there.
    """

    name: str
    packages: dict[str, str]
    is_complete: bool
    problems: list[str]


def extras(*, with_spark: bool = True) -> list[Extra]:
    """Return the extras of streamops that a job can need.

    Parameters
    ----------
    with_spark : bool, default True
        Whether to include those that install Spark itself.

    Returns
    -------
    list of Extra
        By name. Empty if streamops was copied rather than installed.
    """
    left_out = _NOT_LISTED if with_spark else _NOT_LISTED | _OF_SPARK
    try:
        names = metadata.metadata("streamops").get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        return []
    return [_examine(name) for name in sorted({*names} - left_out)]


def _examine(name: str) -> Extra:
    packages, problems, is_complete = {}, [], True
    for owner, package, bounds in _requirements("streamops", name):
        version = installed_version(package)
        is_complete &= bool(version)
        if owner == "streamops":
            packages[package] = version
            if version and not _is_within(version, bounds):
                problems.append(f"{package}{bounds}")
    return Extra(name, packages, is_complete, problems)


def _requirements(owner: str, extra: str) -> Iterator[tuple[str, str, str]]:
    """What an extra of a package requires: by whom, the package, its bounds.

    A requirement with further conditions, such as an operating system, is left out.
    """
    try:
        requirements = metadata.requires(owner) or []
    except metadata.PackageNotFoundError:
        return
    for requirement in requirements:
        text, _, condition = requirement.partition(";")
        if not re.fullmatch(rf"\s*extra == ['\"]{re.escape(extra)}['\"]\s*", condition):
            continue
        parts = re.fullmatch(r"([\w.-]+)(?:\[([\w,. -]+)\])?\s*\(?([^()]*)\)?\s*", text)
        if parts is None:
            continue
        if parts[1] != owner:
            yield owner, parts[1], parts[3]
        for inner in (parts[2] or "").split(","):
            if inner:
                yield from _requirements(parts[1], inner.strip())


def _is_within(version: str, bounds: str) -> bool:
    found = numbers(version)
    for sign, bound in re.findall(r"(>=|<|==)\s*([\d.]+)", bounds):
        limit = numbers(bound)
        is_met = {"<": found < limit, ">=": found >= limit, "==": found == limit}
        if not is_met[sign]:
            return False
    return True
