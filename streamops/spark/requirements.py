"""The packages that streamops requires, and their versions."""

from __future__ import annotations

import re
from collections.abc import Mapping

REQUIRED: Mapping[str, tuple[str, str | None]] = {
    "pyspark": ("4.1", "5"),
    "pandas": ("2.2", "3"),
    "pyarrow": ("18", None),
    "numpy": ("1.26", None),
    "protobuf": ("6.33.5", None),
    "datasketch": ("2", "3"),
    "tzdata": ("2024.1", None),
}
"""By package: the oldest supported version, and the first unsupported one."""


def requirement(package: str) -> str:
    """Return the requirement of a package, for pip.

    Examples
    --------
    >>> requirement("pandas")
    'pandas>=2.2,<3'
    """
    oldest, too_new = REQUIRED[package]
    return f"{package}>={oldest}" + (f",<{too_new}" if too_new else "")


def numbers(version: str) -> tuple[int, ...]:
    """Return the release of a version, for comparisons. A candidate counts as its release.

    Examples
    --------
    >>> numbers("6.33.5"), numbers("5.0.0rc1"), numbers("")
    ((6, 33, 5), (5, 0, 0), ())
    """
    release = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in release[0].split(".")) if release else ()
