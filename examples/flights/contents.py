"""What the job computes: its queries, their windows and values, and how results are told apart."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = [
    "JOINED",
    "QUERIES",
    "RUNNING",
    "TOLD",
    "WINDOWS",
    "Joined",
    "Query",
    "Running",
    "Windows",
    "query_of",
]


@dataclass(frozen=True, slots=True)
class Windows:
    """How the results of one of the windows are told apart.

    Parameters
    ----------
    title : str
        What they are called where there is little room: eight characters at most.
    key : tuple of str
        The columns that no two results have in common.
    due : str
        The column with the instant at which a result is on time.
    of_a_row : int
        How many of them a row belongs to.
    lasting : bool
        Whether a result keeps its key when it is corrected. A session that grows does not.
    more : tuple of str
        What it says beside the departures and their mean delay.
    """

    title: str
    key: tuple[str, ...]
    due: str = "window_end"
    of_a_row: int = 1
    lasting: bool = True
    more: tuple[str, ...] = ()

    @property
    def columns(self) -> list[str]:
        """Those of its table."""
        said = ("departures", "mean_delay", *self.more, "revision")
        return [*dict.fromkeys((*self.key, self.due, *said))]


@dataclass(frozen=True, slots=True)
class Running:
    """How values without a window are told apart.

    Parameters
    ----------
    title : str
        What they are called where there is little room: eight characters at most.
    key : tuple of str
        The columns that no two values have in common; none, where there is but one.
    said : str
        The column with the value.
    """

    title: str
    key: tuple[str, ...]
    said: str

    @property
    def columns(self) -> list[str]:
        """Those of its table."""
        return [*self.key, self.said, "revision"]


@dataclass(frozen=True, slots=True)
class Joined:
    """How the rows of a join are told apart.

    Parameters
    ----------
    title : str
        What they are called where there is little room: eight characters at most.
    says : tuple of str
        What is said of each flight.
    key : tuple of str
        The columns that no two rows have in common.
    """

    title: str
    says: tuple[str, ...]
    key: tuple[str, ...] = ("flight_id",)

    @property
    def columns(self) -> list[str]:
        """Those of its table."""
        return [*self.key, *self.says]


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
"""The values without a window by their name in the tables."""

JOINED = {
    "arrivals": Joined("arrivals", ("origin", "scheduled", "landed", "status")),
    "weather": Joined(
        "weather",
        ("origin", "departed", "delay", "observed", "visibility", "wind", "status"),
    ),
    "aircraft": Joined("aircraft", ("tailnum", "delay", "manufacturer", "built")),
}
"""The joins by their name in the tables."""

TOLD: dict[str, Windows | Running | Joined] = {**WINDOWS, **RUNNING, **JOINED}
"""All that is published."""


@dataclass(frozen=True, slots=True)
class Query:
    """One of the queries over the log.

    Parameters
    ----------
    title : str
        What it is about.
    files : int
        How many files of the log it takes as a micro-batch.
    windows : tuple of str
        What it computes.
    running : tuple of str
        What it computes without windows.
    joined : tuple of str
        What it joins.
    shows : tuple of str
        Which counts are worth a look while it runs.
    """

    title: str
    files: int
    windows: tuple[str, ...] = ()
    running: tuple[str, ...] = ()
    joined: tuple[str, ...] = ()
    shows: tuple[str, ...] = ("stragglers", "corrections", "too_late")

    @property
    def told(self) -> tuple[str, ...]:
        """All that it publishes."""
        return self.windows + self.running + self.joined


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
}
"""The queries by name, in the order in which they run."""


def query_of(windows: str) -> str:
    """The query that computes these windows, or these values without any."""
    (query,) = (name for name, each in QUERIES.items() if windows in each.told)
    return query
