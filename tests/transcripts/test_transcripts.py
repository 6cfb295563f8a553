"""Every transcript, replayed without Spark."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamops.testing.transcripts import Transcript, assert_replays, load

TRANSCRIPTS = [item for file in sorted(Path(__file__).parent.glob("*.yaml")) for item in load(file)]

with_every_transcript = pytest.mark.parametrize(
    "transcript", TRANSCRIPTS, ids=lambda item: item.name
)


@with_every_transcript
def test_on_the_core(transcript: Transcript) -> None:
    assert_replays(transcript, shards=1)


@pytest.mark.thorough
@with_every_transcript
def test_on_the_core_with_a_restart_before_every_line(transcript: Transcript) -> None:
    assert_replays(transcript, shards=3, restart=True)


@pytest.mark.exhaustive
@with_every_transcript
def test_on_the_default_number_of_shards(transcript: Transcript) -> None:
    assert_replays(transcript)


def test_names_of_transcripts_are_unique() -> None:
    names = [transcript.name for transcript in TRANSCRIPTS]
    assert len(names) == len(set(names))
    assert len(names) >= 25
