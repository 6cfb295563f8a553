"""What the job computes: its queries, their windows and values, and the keys of their results."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "JOINED",
    "OUTPUTS",
    "QUERIES",
    "RULES",
    "RUNNING",
    "WINDOWS",
    "Query",
    "Rows",
    "Running",
    "Windows",
    "query_of",
]


@dataclass(frozen=True, slots=True)
class Windows:
    """The output of a window operator.

    Parameters
    ----------
    title : str
        Column heading: eight characters at most.
    key : tuple of str
        The columns that identify a result.
    due : str
        The column with the instant at which a result is on time.
    of_a_row : int
        The number of windows that a row belongs to.
    lasting : bool
        Whether a correction keeps the key. An extended session has another key.
    more : tuple of str
        Further columns beside the departures and their mean delay.
    """

    title: str
    key: tuple[str, ...]
    due: str = "window_end"
    of_a_row: int = 1
    lasting: bool = True
    more: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The columns of its table."""
        value = ("departures", "mean_delay", *self.more, "revision")
        return [*dict.fromkeys((*self.key, self.due, *value))]


@dataclass(frozen=True, slots=True)
class Running:
    """The output of an aggregation without windows.

    Parameters
    ----------
    title : str
        Column heading: eight characters at most.
    key : tuple of str
        The columns that identify a result; empty if there is only one.
    value : str
        The column with the value.
    """

    title: str
    key: tuple[str, ...]
    value: str

    @property
    def columns(self) -> list[str]:
        """The columns of its table."""
        return [*self.key, self.value, "revision"]


@dataclass(frozen=True, slots=True)
class Rows:
    """The output of a join, or of a rule.

    Parameters
    ----------
    title : str
        Column heading: eight characters at most.
    values : tuple of str
        The columns of the result.
    key : tuple of str
        The columns that identify a row.
    """

    title: str
    values: tuple[str, ...]
    key: tuple[str, ...] = ("flight_id",)

    @property
    def columns(self) -> list[str]:
        """The columns of its table."""
        return [*self.key, *self.values]


WINDOWS = {
    "hourly": Windows("hourly", ("origin", "window_start")),
    "three_hours": Windows("3 hours", ("origin", "window_start"), of_a_row=3),
    "days": Windows("days", ("origin", "window_start", "window_end")),
    "working_days": Windows("sessions", ("tailnum", "window_start", "window_end"), lasting=False),
    "last_hour": Windows("sliding", ("origin", "scheduled"), due="scheduled"),
    "airline_days": Windows(
        "airlines", ("carrier", "window_start", "window_end"), more=("aircraft", "sketch")
    ),
}
"""The windows by their name in the tables."""

RUNNING = {
    "route_delays": Running("routes", ("origin", "dest"), "delays"),
    "busiest_routes": Running("busiest", (), "routes"),
}
"""The aggregations without windows by their name in the tables."""

JOINED = {
    "arrivals": Rows("arrivals", ("origin", "scheduled", "landed", "status")),
    "weather": Rows(
        "weather",
        ("origin", "departed", "delay", "observed", "visibility", "wind", "status"),
    ),
    "aircraft": Rows("aircraft", ("tailnum", "delay", "manufacturer", "built")),
}
"""The joins by their name in the tables."""

RULES = {
    "grounded": Rows("grounded", ("tailnum", "match_start", "match_end", "minutes")),
    "alerts": Rows("alerts", ("origin", "dest", "carrier", "delay"), ("flight_id", "alert")),
    "duty": Rows("duty", ("tailnum", "at", "violation", "since", "departures")),
}
"""The rules by their name in the tables: a pattern, stored queries, a function per key."""

OUTPUTS: dict[str, Windows | Running | Rows] = {**WINDOWS, **RUNNING, **JOINED, **RULES}
"""All outputs by name."""


@dataclass(frozen=True, slots=True)
class Query:
    """One of the queries over the log.

    Parameters
    ----------
    title : str
        Its title in the report.
    files : int
        The number of files of the log per micro-batch.
    windows : tuple of str
        The windows that it computes.
    running : tuple of str
        The aggregations without windows that it computes.
    joined : tuple of str
        The joins that it computes.
    rules : tuple of str
        The rules that it applies.
    shows : tuple of str
        The metrics displayed while it runs.
    """

    title: str
    files: int
    windows: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    rules: tuple[str, ...] = ()
    shows: tuple[str, ...] = ("stragglers", "corrections", "too_late")

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of everything that it publishes."""
        return self.windows + self.running + self.joined + self.rules


QUERIES = {
    "days": Query(
        "Days, working days, the last hour at each departure; aircraft, delays, routes by sketches",
        files=4,
        windows=("days", "working_days", "last_hour", "airline_days"),
        running=("route_delays", "busiest_routes"),
    ),
    "hours": Query(
        "Every hour, and the three hours before", files=1, windows=("hourly", "three_hours")
    ),
    "landings": Query(
        "Flights with their landing within a day, or without",
        files=12,
        joined=("arrivals",),
        shows=("results",),
    ),
    "departures": Query(
        "Departures with the weather of the moment, and with the aircraft of the register",
        files=12,
        joined=("weather", "aircraft"),
        shows=("results", "corrections"),
    ),
    "duty": Query(
        "The duty of the crews of aircraft, with its limit",
        files=12,
        rules=("duty",),
        shows=("results",),
    ),
    "outcomes": Query(
        "Aircraft that were late three times and then cancelled; the alerts of dispatchers",
        files=12,
        rules=("grounded", "alerts"),
        shows=("results",),
    ),
}
"""The queries by name, in the order in which they run."""


def query_of(windows: str) -> str:
    """The query that computes this output."""
    (query,) = (name for name, query in QUERIES.items() if windows in query.outputs)
    return query
