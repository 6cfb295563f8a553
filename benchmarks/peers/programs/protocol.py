"""What the program of a system and the benchmark say to each other; standard library only.

The benchmark starts the program in the interpreter of its system, and writes one line of JSON per
job to its input. The program carries the job out, and answers with one line of JSON. In between,
the benchmark reads the CPU seconds of the process tree. All that a system prints goes to its log.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Job:
    """One run of one workload over a finite input."""

    workload: str
    keys: int
    """About how many keys the events have. That of a small run, over fewer, is the same."""
    inputs: dict[str, str]
    """The file or folder of each input, by name: in the format that the system reads."""
    output: str | None
    """The folder for results, which does not exist. None: results are computed and discarded."""
    state: str
    """An empty folder for checkpoints."""
    settings: dict[str, int]
    """Sizes, gaps and delays of all workloads, in milliseconds."""
    live: bool = False
    """Whether files come into the input while the job runs. It does not end, and writes lines to a file."""

    @property
    def lines(self) -> str:
        """The file for the results of a live job: a time in milliseconds per line, and a flush."""
        return f"{self.output}/results.txt"


def serve(carry_out: Callable[[Job], None]) -> None:
    """Carry out jobs until the input ends."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    for line in sys.stdin:
        job = Job(**json.loads(line))
        Path(job.state).mkdir(parents=True)
        if job.output:
            Path(job.output).mkdir(parents=True)
        answer: dict[str, Any] = {"done": True}
        try:
            carry_out(job)
        except Exception as error:  # the benchmark says which job failed, and goes on
            answer = {"error": f"{type(error).__name__}: {error}"}
            traceback.print_exc()
        print(json.dumps(answer), file=answers, flush=True)
