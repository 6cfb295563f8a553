"""The packages that streamops requires, and their versions."""

from __future__ import annotations

import importlib.metadata
import re
from collections.abc import Mapping

from streamops.environment import conditions

REQUIRED: Mapping[str, tuple[str, str | None]] = {
    "pyspark": ("3.5", "5"),
    "pandas": ("1.5.3", "3"),
    "pyarrow": ("14", None),
    "numpy": ("1.23.2", None),
    "tzdata": ("2022.1", None),
}
"""By package: the oldest supported version, and the first unsupported one."""


def requirement(package: str) -> str:
    """Return the requirement of a package, for pip.

    Examples
    --------
    >>> requirement("pandas")
    'pandas>=1.5.3,<3'
    """
    oldest, too_new = REQUIRED[package]
    return f"{package}>={oldest}" + (f",<{too_new}" if too_new else "")


def numbers(version: str) -> tuple[int, ...]:
    """Return the release of a version, for comparisons. A candidate counts as its release.

    Examples
    --------
    >>> numbers("1.5.3"), numbers("5.0.0rc1"), numbers("")
    ((1, 5, 3), (5, 0, 0), ())
    """
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else ()


def compare_version(package: str, version: str) -> str | None:
    """Return "too old" or "too new", or None if the version is supported.

    Examples
    --------
    >>> compare_version("pandas", "3.0.0"), compare_version("pandas", "2.2.0")
    ('too new', None)
    """
    oldest, too_new = REQUIRED[package]
    if numbers(version) < numbers(oldest):
        return "too old"
    return "too new" if too_new and numbers(version) >= numbers(too_new) else None


def installed_version(package: str) -> str:
    """Return the version of an installed package; empty if it is not installed, or not known."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""


def refuse_versions() -> None:
    """Refuse installed packages of versions with which operators do not work.

    pip refuses them, too, unless they were installed later or in another way. A package whose
    version is not known, as on some platforms, is accepted.

    Raises
    ------
    RequirementError
        ``VERSION_NOT_SUPPORTED``.
    """
    for package in REQUIRED:
        version = installed_version(package)
        if not version:
            continue
        verdict = compare_version(package, version)
        if verdict is not None:
            raise conditions.VERSION_NOT_SUPPORTED.error(
                package=package,
                version=version,
                verdict=verdict,
                requirement=requirement(package),
                got=f"{package} {version}",
            )
