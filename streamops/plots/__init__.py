"""Pictures of streams: windows, watermarks, matches, corrections, sketches and states.

===================  ================================================================
``plot_windows``     windows over the events of their key
``plot_sessions``    sessions, with the gap after their last event
``plot_history``     versions of rows as intervals, such as a type 2 dimension
``plot_matches``     matches of a pattern over the events of their key
``plot_corrections`` what every micro-batch emitted, corrected and retracted
``plot_updates``     the value of every key after each micro-batch
``plot_watermark``   event time against arrival, with the watermark as a staircase
``plot_late_share``  the share of rows that are late, against the delay
``plot_state``       the size of the state after every micro-batch, and its bound
``plot_error``       the measured error of sketches, and their error bound
``plot_estimates``   estimates with their lower and upper bounds, and the exact values
===================  ================================================================

``COLORS`` has the colors that they use, by meaning. All functions need the package matplotlib:
``pip install 'streamops[plots]'``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from streamops.kernel.calls import explain_call
from streamops.kernel.errors import located
from streamops.kernel.palette import COLORS
from streamops.kernel.parameters import require_package

if TYPE_CHECKING:
    from streamops.plots.arrivals import plot_late_share, plot_watermark
    from streamops.plots.corrections import plot_corrections
    from streamops.plots.estimates import plot_error, plot_estimates
    from streamops.plots.intervals import plot_history, plot_sessions, plot_windows
    from streamops.plots.matches import plot_matches
    from streamops.plots.state import plot_state
    from streamops.plots.updates import plot_updates

__all__ = [
    "COLORS",
    "plot_corrections",
    "plot_error",
    "plot_estimates",
    "plot_history",
    "plot_late_share",
    "plot_matches",
    "plot_sessions",
    "plot_state",
    "plot_updates",
    "plot_watermark",
    "plot_windows",
]

_MODULES = {
    "plot_corrections": "corrections",
    "plot_error": "estimates",
    "plot_estimates": "estimates",
    "plot_history": "intervals",
    "plot_late_share": "arrivals",
    "plot_matches": "matches",
    "plot_sessions": "intervals",
    "plot_state": "state",
    "plot_updates": "updates",
    "plot_watermark": "arrivals",
    "plot_windows": "intervals",
}

if not TYPE_CHECKING:  # or a type checker would find every name

    def __getattr__(name: str) -> Any:
        """Import matplotlib when a function is first used, and not with the package."""
        if name not in _MODULES:
            message = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(message)
        with located(f"plots.{name}"):
            require_package("matplotlib", package="matplotlib", extra="plots")
        found = getattr(importlib.import_module(f"streamops.plots.{_MODULES[name]}"), name)
        return explain_call(f"plots.{name}")(found)


def __dir__() -> list[str]:
    return sorted(__all__)
