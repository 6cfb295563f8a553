"""Tokens of what a writer wrote to the source of a query, and whether the offsets of the query have it."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from streamops.kernel.databases import parse_lsn
from streamops.sinks import conditions

Reached = Callable[[Any], bool | None]
"""Whether the offset of a source has it; None if the source has other offsets."""

FILE = "file:"


@dataclass(frozen=True, slots=True)
class Token:
    """What a writer wrote.

    Parameters
    ----------
    text : str
        As the user passes it.
    is_in : callable, optional
        Whether the offset of a source has it. None: it is a file, whose number the log of the source has.
    """

    text: str
    is_in: Reached | None

    @property
    def path(self) -> str:
        """The path of a file."""
        return path_of(self.text)

    def is_reached(self, offsets: Sequence[str]) -> bool:
        """Whether all sources that have such offsets have it."""
        parsed = [json.loads(offset) for offset in offsets if offset]
        answers = [answer for of in parsed if self.is_in and (answer := self.is_in(of)) is not None]
        return bool(answers) and all(answers)


def parse_token(text: str) -> Token:
    """Parse a token.

    Raises
    ------
    SpecError
        ``INVALID_PARAMETER``.

    Examples
    --------
    >>> token = parse_token("kafka:orders:0:123")
    >>> token.is_reached(['{"orders":{"0":123}}']), token.is_reached(['{"orders":{"0":124}}'])
    (False, True)
    >>> parse_token("lsn:0/16B3748").is_reached(['{"system":"7301","lsn":"0/16B3748"}'])
    True
    """
    of, _, rest = text.partition(":")
    try:
        if of == "kafka":
            topic, partition, offset = rest.split(":")
            return Token(text, _after_record(topic, str(int(partition)), int(offset)))
        if of == "lsn" and (lsn := parse_lsn(rest)) is not None:
            return Token(text, _after_commit(lsn))
        if of == "delta":
            return Token(text, _after_version(int(rest)))
        if text.startswith(FILE) and rest:
            return Token(text, None)
    except ValueError:
        pass
    raise conditions.NOT_A_TOKEN.error(got=repr(text))


def tokens_of(offsets: Sequence[str]) -> list[str]:
    """The tokens of everything that is before these offsets. Sources without tokens have none.

    Examples
    --------
    >>> tokens_of(['{"orders":{"0":124,"1":0}}', '{"system":"7301","lsn":"0/16B3748"}', '{"logOffset":3}'])
    ['kafka:orders:0:123', 'lsn:0/16B3748']
    """
    found = []
    for offset in (json.loads(text) for text in offsets if text):
        if not isinstance(offset, dict):
            continue
        version = offset.get("reservoirVersion")
        if parse_lsn(offset.get("lsn")) is not None:
            found.append(f"lsn:{offset['lsn']}")
        elif version is not None and int(version) > 0:
            found.append(f"delta:{int(version) - 1}")
        for topic, partitions in offset.items():
            if isinstance(partitions, dict):
                ends = ((partition, int(end)) for partition, end in partitions.items())
                found += [f"kafka:{topic}:{at}:{end - 1}" for at, end in ends if end > 0]
    return found


def path_of(uri: str) -> str:
    """The path of a file, as a URI of Spark and of Python have it.

    Examples
    --------
    >>> path_of("file:///in/a%20b.json"), path_of("file:/in/a.json"), path_of("s3a://bucket/in/a.json")
    ('/in/a b.json', '/in/a.json', 's3a://bucket/in/a.json')
    """
    return unquote(urlsplit(uri).path) if uri.startswith(FILE) else uri


def _after_record(topic: str, partition: str, number: int) -> Reached:
    def is_in(offset: Any) -> bool | None:
        partitions = offset.get(topic) if isinstance(offset, dict) else None
        if not isinstance(partitions, dict):
            return None
        # A partition that was added is not in the offsets of before. Theirs are those of the next record.
        return int(partitions.get(partition, 0)) > number

    return is_in


def _after_commit(lsn: int) -> Reached:
    def is_in(offset: Any) -> bool | None:
        at = parse_lsn(offset.get("lsn")) if isinstance(offset, dict) else None
        return None if at is None else at >= lsn

    return is_in


def _after_version(version: int) -> Reached:
    def is_in(offset: Any) -> bool | None:
        at = offset.get("reservoirVersion") if isinstance(offset, dict) else None
        return None if at is None else int(at) > version

    return is_in
