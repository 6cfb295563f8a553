"""Windows on a grid as transforms."""

from __future__ import annotations

import functools
from typing import Any

from streamops.kernel.time import Duration
from streamops.spark.transform import Options, Transform
from streamops.windows.core import fixed as core
from streamops.windows.fixed_settings import FixedWindows
from streamops.windows.native import native

__all__ = ["fixed"]


def fixed(where: str, size: Duration, hop: Duration, options: Options, **said: Any) -> Transform:
    """The transform of these windows, its settings checked."""
    settings = FixedWindows.of(where, size, hop, **said)
    return Transform(
        operator=where,
        settings=settings,
        options=options.validated(where),
        core=core,
        native=functools.partial(native, settings),
    )
