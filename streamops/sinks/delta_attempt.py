"""An attempt to commit a micro-batch to a Delta table."""

from __future__ import annotations

import importlib
from typing import Any

from streamops.sinks import delta_files
from streamops.sinks.core.delta_commit import Commit
from streamops.sinks.core.ledger import Decision, Entry
from streamops.sinks.lake import values_of
from streamops.sinks.protocol import Attempt, Conflict, Found, Reduced
from streamops.sinks.sink import refused
from streamops.sinks.tasks import Receipts


class Handle:
    """A table that is open, as the connection of a session, and its last commit by this sink."""

    def __init__(self, table: Any, actions: Any) -> None:
        self.table, self.actions = table, actions
        self.committed: tuple[int, Entry] | None = None

    def close(self) -> None:
        """An open table holds nothing that must be released."""


class DeltaAttempt(Attempt):
    """An attempt to commit the next version of the table."""

    def __init__(self, sink: Any, table: Any, content: Reduced | Receipts, found: Found) -> None:
        self.sink, self.table, self.content, self.found = sink, table, content, found

    def write(self, decision: Decision) -> None:
        """Apply the micro-batch and the entry in one transaction of the target."""
        sink, table, content = self.sink, self.table, self.content
        if table is None:
            sink._create(sink._stored(values_of(content)))
            raise Conflict()  # the created table has no entry: decide again
        exceptions = importlib.import_module("deltalake.exceptions")
        version = table.version()
        try:
            sink._refuse_features(table)
            if delta_files.respell(table):
                raise Conflict()  # read the table again
            commit = Commit(table, sink._properties(decision))
            if isinstance(content, Receipts):
                sink._commit_files(commit, content, decision, self.found.entry)
            else:
                sink._apply(commit, content.net, content.names, decision)
        except (exceptions.DeltaError, OSError, ValueError) as error:
            # Of another commit; or of this one, whose answer was lost, or after which something else failed.
            sink.session.close()
            now = sink._open()
            if now is not None and now.version() == version:
                raise
            is_conflict = isinstance(error, exceptions.CommitFailedError)
            raise Conflict(None if is_conflict else refused("the Delta table", error)) from None
        handle: Any = sink.session.connection
        handle.committed = (table.version(), decision.entry)
