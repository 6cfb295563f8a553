"""Optional packages of sources and sinks."""

from __future__ import annotations

import importlib
from typing import Any

from streamops.kernel.errors import RequirementError


def require_package(module: str, *, package: str, extra: str, where: str) -> Any:
    """Import a module of an optional package.

    Raises
    ------
    RequirementError
        ``PACKAGE_MISSING``: the package is not installed.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise RequirementError(
            "PACKAGE_MISSING",
            f"the package {package} is not installed",
            where=where,
            got=str(error),
            expected=f"the package {package}",
            fix=f"pip install 'streamops[{extra}]'",
        ) from error
