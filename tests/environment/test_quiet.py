"""The filter of stderr: it drops progress lines, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from streamops.environment import quiet
from streamops.environment.quiet import PROGRESS, LineFilter
from streamops.kernel.versions import has_transform

# What Spark 4.3 prints with the first query of a session.
PRINTED = b"""\
WARNING: Using incubator modules: jdk.incubator.vector
Using Spark's default log4j profile: org/apache/spark/log4j2-defaults.properties
Setting default log level to "WARN".
To adjust logging level use sc.setLogLevel(newLevel). For SparkR, use setLogLevel(newLevel).
26/11/26 04:00:19 WARN NativeCodeLoader: Unable to load native-hadoop library for your platform... using builtin-java classes where applicable
Setting Spark log level to "ERROR".
Starting Streaming TransformWithStateInPandas Python worker.

Streaming TransformWithStateInPandas Python worker finish init stage of Python runner. Received UDF from JVM: <bound method f>, received return type of UDF: StructType([]).

Streaming TransformWithStateInPandas Python worker received parameters for UDF. State server port/path: 45553, key schema: StructType([StructField('shard', IntegerType(), True)]).

Streaming TransformWithStateInPandas Python worker Starting execution of UDF: <bound method f>.

Streaming TransformWithStateInPandas Python worker Completed execution of UDF: <bound method f>.

"""
ERROR = b"""\
26/11/26 04:02:59 ERROR Executor: Exception in task 0.0 in stage 45.0 (TID 83)

org.apache.spark.SparkNumberFormatException: [CAST_INVALID_INPUT] The value is malformed.
\tat org.apache.spark.sql.Errors$.cast(Errors.scala:147)
Streaming TransformWithStateInPandas Python worker failed
Traceback (most recent call last):
"""
BAR = b"\r[Stage 0:=====>                          (1 + 2) / 8]"


def passed(*pieces: bytes) -> bytes:
    lines = LineFilter()
    return b"".join([*(lines.feed(piece) for piece in pieces), lines.end()])


def test_progress_lines_are_dropped() -> None:
    assert passed(PRINTED) == b""


def test_everything_else_is_passed_on() -> None:
    assert passed(ERROR) == ERROR
    assert passed(b"\n\n", ERROR) == b"\n\n" + ERROR
    assert passed(PRINTED + ERROR + PRINTED) == ERROR
    assert passed(PRINTED + b"\n" + ERROR) == b"\n" + ERROR  # a second empty line


@pytest.mark.parametrize("size", [1, 2, 7, 64, 1_000])
def test_the_result_does_not_depend_on_how_the_bytes_arrive(size: int) -> None:
    whole = ERROR + PRINTED + ERROR
    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]
    native = [line for line in PRINTED.splitlines(keepends=True) if b"NativeCode" in line]
    # Log4j writes whole lines: the one line that is known by its middle is dropped only then.
    assert passed(*pieces).replace(native[0], b"") == ERROR + ERROR


def test_a_line_that_has_no_end_yet_is_passed_on_at_once() -> None:
    lines = LineFilter()
    assert lines.feed(BAR) == BAR
    assert lines.feed(b"   ") == b"   "
    assert lines.feed(b"\rready?") == b"\rready?"
    assert lines.feed(b"\n") == b"\n"


def test_a_line_that_may_be_a_progress_line_waits() -> None:
    lines = LineFilter()
    assert lines.feed(b"Streaming Transform") == b""
    assert lines.feed(b"ation is a word\n") == b"Streaming Transformation is a word\n"
    assert lines.feed(b"Starting") == b""
    assert lines.end() == b"Starting"


def test_progress_lines_are_dropped_behind_a_progress_bar() -> None:
    assert passed(BAR, PRINTED, b"\r") == BAR + b"\r"


def test_every_pattern_is_that_of_a_line_that_spark_prints() -> None:
    lines = PRINTED.splitlines()
    assert all(any(line.startswith(pattern) for line in lines) for pattern in PROGRESS)


@pytest.mark.skipif(not has_transform(), reason="of Spark 4")
def test_the_worker_of_the_installed_spark_prints_these_lines() -> None:
    import pyspark.sql.streaming

    folder = Path(pyspark.sql.streaming.__file__).parent
    source = (folder / "transform_with_state_driver_worker.py").read_text()
    assert f'"{quiet._WORKER.decode()}"' in source
    for pattern in PROGRESS[1:5]:
        assert pattern.removeprefix(quiet._WORKER).decode() in source


PROGRAM = """
import os, sys
from streamops.environment.quiet import filter_stderr
with filter_stderr():
    if os.fork() == 0:  # in place of the JVM
        os.write(2, b"".join(PARTS))
        os._exit(0)
    os.wait()
os.write(2, b"own Setting Spark log level to\\n")
"""


def run_program(*parts: bytes) -> subprocess.CompletedProcess[bytes]:
    program = PROGRAM.replace("PARTS", repr(list(parts)))
    return subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, timeout=60
    )


def test_a_process_that_starts_in_the_block_is_filtered() -> None:
    done = run_program(PRINTED, ERROR)
    # The pipe is closed by both writers before the filter ends, so all has arrived.
    own = b"own Setting Spark log level to\n"
    assert sorted([*done.stderr.splitlines()]) == sorted([*ERROR.splitlines(), *own.splitlines()])
    assert done.stdout == b""


def test_the_filter_survives_an_interrupt_and_ends_with_its_input() -> None:
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", quiet.__file__], stdin=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdin is not None
    assert process.stderr is not None
    process.stdin.write(b"first\n")
    process.stdin.flush()
    assert os.read(process.stderr.fileno(), 100) == b"first\n"
    process.send_signal(signal.SIGINT)
    time.sleep(0.1)
    _, err = process.communicate(b"last", timeout=60)
    assert (err, process.returncode) == (b"last", 0)


def test_without_stderr_nothing_changes() -> None:
    program = """
import os
from streamops.environment.quiet import filter_stderr
os.close(2)
with filter_stderr():
    print("done")
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, b"done\n")


def test_where_a_process_cannot_be_started_nothing_changes(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError("no more processes")

    monkeypatch.setattr(os, "posix_spawn", refuse)
    with quiet.filter_stderr():
        os.write(2, b"Setting Spark log level to x\n")
    assert capfd.readouterr().err == "Setting Spark log level to x\n"
