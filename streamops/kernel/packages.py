"""Optional packages of sources and sinks."""

from __future__ import annotations

import importlib
from typing import Any

from streamops.kernel import conditions


def require_package(module: str, *, package: str, extra: str) -> Any:
    """Import a module of an optional package.

    Raises
    ------
    RequirementError
        ``PACKAGE_MISSING``: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise conditions.PACKAGE_MISSING.error(
            package=package, extra=extra, got=str(error)
        ) from error
