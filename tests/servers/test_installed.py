"""Tests of servers are skipped where a server is missing, unless it is required."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.servers.installed import REQUIRE, skip

SCRIPTS = Path(__file__).parents[2] / "scripts"


def test_a_missing_server_skips_a_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(REQUIRE, raising=False)
    with pytest.raises(pytest.skip.Exception, match="no Kafka"):
        skip("no Kafka")


def test_a_required_server_that_is_missing_fails_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(REQUIRE, "1")
    with pytest.raises(pytest.fail.Exception, match=f"no Kafka; {REQUIRE}=1"):
        skip("no Kafka")


@pytest.mark.parametrize("script", ["get-kafka", "get-prometheus"])
@pytest.mark.parametrize(("required", "code", "text"), [("", 0, "are skipped"), ("1", 1, "=1")])
def test_a_script_that_cannot_fetch_a_server_fails_if_it_is_required(
    tmp_path: Path, script: str, required: str, code: int, text: str
) -> None:
    # Without programs it finds neither the server, nor Maven, nor apt-get, and in the empty cache no Kafka.
    (tmp_path / "dirname").symlink_to("/usr/bin/dirname")
    path = {"PATH": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path)}
    done = subprocess.run(
        ["/bin/bash", SCRIPTS / script],
        env={**os.environ, **path, REQUIRE: required},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, text in done.stderr) == (code, True), done.stderr
