"""Windows on a grid as transforms."""

from __future__ import annotations

import functools
from typing import Any

from streamops.kernel.errors import SpecError
from streamops.kernel.time import Duration
from streamops.spark.transform import Options, Transform
from streamops.windows.calendar_settings import CalendarWindows
from streamops.windows.core import fixed as core
from streamops.windows.cumulative_settings import CumulativeWindows
from streamops.windows.fixed_settings import FixedWindows
from streamops.windows.native import native

__all__ = ["fixed", "kernel_only"]


def fixed(where: str, size: Duration, hop: Duration, options: Options, **said: Any) -> Transform:
    """The transform of these windows, its settings checked."""
    settings = FixedWindows.of(where, size, hop, **said)
    return _on_grid(settings, options.validated(where))


def kernel_only(
    settings: CalendarWindows | CumulativeWindows, options: Options, reason: str
) -> Transform:
    """The transform of windows that Spark has no word for, its options checked."""
    options = options.validated(settings.where)
    if options.engine == "native":
        raise SpecError(
            "NO_NATIVE_ENGINE",
            "Spark's own operators cannot say this",
            where=settings.where,
            got="engine='native'",
            expected=f"'auto' or 'kernel': {reason}",
            fix="leave engine out, or write engine='kernel'",
        )
    return _on_grid(settings, options)


def _on_grid(settings: Any, options: Options) -> Transform:
    return Transform(
        operator=settings.where,
        settings=settings,
        options=options,
        core=core,
        native=functools.partial(native, settings),
    )
