"""Random connection strings: libpq and the library read the same, and secrets are text nowhere."""

from __future__ import annotations

import random
from typing import Any
from urllib.parse import quote

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from streamops import erasure, sinks, sources
from streamops.errors import SpecError, StreamopsError
from streamops.kernel.databases import parse_conninfo
from streamops.sinks.sink import unavailable
from tests.borders import cases

KEYWORDS = [
    *("user", "password", "host", "port", "dbname", "sslmode", "service", "passfile", "hostaddr"),
    *("sslpassword", "options", "sslkey", "ssl", "requiressl", "scram_client_key", "nothing", ""),
]
PIECES = [
    *(
        "a",
        "B",
        "7",
        "5432",
        "true",
        "1",
        "shop",
        "S3cret",
        "é",
        "\U0001f600",
        "%41",
        "%25",
        "%2F",
        "%40",
    ),
    *(
        "%c3%a9",
        "%zz",
        "%",
        "%0",
        "%00",
        " ",
        "\t",
        "\n",
        "'",
        '"',
        "\\",
        "\\'",
        "\\\\",
        "#",
        "?",
        "/",
    ),
    *(":", "@", "&", "=", ",", "[", "]", "[::1]", "+", "-", "."),
]


def text_of(draw: random.Random, most: int = 5) -> str:
    return "".join(draw.choice(PIECES) for _ in range(draw.randrange(most)))


def uri(draw: random.Random) -> str:
    text = draw.choice(
        ["postgresql://", "postgresql://", "postgres://", "postgresql:/", "Postgres://"]
    )
    if draw.random() < 0.6:
        text += text_of(draw, 4) + draw.choice(["", ":" + text_of(draw)]) + "@"
    text += draw.choice(["", "host", "[::1]", text_of(draw, 4), "h1:1,h2:2", "[::1]:5,b"])
    text += draw.choice(["", "", ":5432", ":" + text_of(draw, 3)])
    text += draw.choice(["", "/", "/shop", "/" + text_of(draw, 4)])
    for start in "?&&"[: draw.randrange(4)]:
        equals = draw.choice(["=", "=", "=", "=", "", "=="])
        text += start + draw.choice(KEYWORDS[:-2] * 3 + KEYWORDS) + equals + text_of(draw, 4)
    return text + draw.choice(["", "", "", "&", "?", " "])


def pairs(draw: random.Random) -> str:
    text = draw.choice(["", " ", "\n"])
    for _ in range(draw.randrange(5)):
        value = text_of(draw)
        value = draw.choice(
            [value, f"'{value}'", "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"]
        )
        text += draw.choice(KEYWORDS[:-2] * 3 + KEYWORDS)
        text += (
            draw.choice(["=", "=", " = ", "\t=", ""]) + value + draw.choice([" ", " ", "\n ", ""])
        )
    return text


def expected(text: str) -> dict[str, Any] | None:
    """What libpq reads; None if it refuses the text."""
    try:
        return conninfo_to_dict(text)
    except psycopg.Error:
        return None


def found(text: str) -> dict[str, Any] | None:
    try:
        return dict(parse_conninfo(text))
    except ValueError:
        return None


@pytest.mark.parametrize("make", [uri, pairs])
def test_libpq_reads_the_same(make: Any) -> None:
    draw, accepted = random.Random(make.__name__), 0
    number = cases(3_000, 50_000)
    for _ in range(number):
        text = make(draw)
        try:
            wanted = expected(text)
        except UnicodeDecodeError:
            continue  # psycopg shows text only
        assert found(text) == wanted, text
        accepted += wanted is not None
    assert accepted > number / 20


OTHERS = list("/@#?%'\" \\+&=;$!*()[]{}<>^`|~,.:_-é")
END = "Zk7"


def password_of(draw: random.Random) -> str:
    """A password that no other part of an address contains."""
    return "".join(draw.choice([*OTHERS, "Qz", "9x"]) for _ in range(8)) + END


def urls(password: str, written: str) -> dict[Any, list[str]]:
    quoted = password.replace("\\", "\\\\").replace("'", "\\'")
    return {
        sinks.postgres: [
            f"postgresql://app:{written}@db:5432/shop",
            f"postgresql://app@db/shop?sslmode=require&sslpassword={written}",
            f"postgresql:///shop?user=app&password={written}&host=/run",
            f"host=db user=app password='{quoted}' dbname=shop",
            f"host=db password = {password} dbname=shop",
        ],
        sinks.sqlalchemy: [
            f"postgresql+psycopg://app:{written}@db:5432/shop",
            f"mysql+pymysql://app:{written}@db/shop?ssl_key_password={written}",
        ],
        key_table: [f"postgresql+psycopg://app:{written}@db:5432/shop?sslpassword={written}"],
        outbox: [f"postgresql://app:{written}@db/shop", f"host=db password='{quoted}'"],
        path: [f"s3://app:{written}@bucket/folder?secret_key={written}"],
    }


def key_table(url: str) -> str:
    table = erasure.KeyTable(url=url)
    return f"{table!r}{table._unavailable(RuntimeError(f'no connection to {url}'))}"


def outbox(url: str) -> str:
    return repr(sources.outbox(url, slot="s"))


def path(url: str) -> str:
    sink = sinks.delta(url)
    with pytest.raises(StreamopsError) as raised, sink._errors():
        raise OSError(f"no folder {url}")
    return f"{sink!r}{sink.label}{sinks.parquet(url)!r}{with_causes(raised.value)}"


def table(make: Any, url: str) -> str:
    sink = make(url, "daily")
    driver = RuntimeError(f"connection to {url} failed: user unknown: {url}")
    with pytest.raises(StreamopsError) as raised, sink._errors():
        raise unavailable("the target", driver) from driver
    both = sinks.fan_out({"a": sink, "b": sink.after(id)})
    return f"{sink!r}{sink.label}{both!r}{with_causes(raised.value)}"


def with_causes(error: BaseException | None) -> str:
    """An error, and all errors that a traceback of it would contain."""
    text = ""
    while error is not None:
        text += f"{error}{error!r}{getattr(error, 'got', '')}"
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return text


def texts_of(make: Any, url: str) -> tuple[str, str]:
    """All texts in which an address could be text, and the code of a refusal."""
    try:
        is_table = make in (sinks.postgres, sinks.sqlalchemy)
        return table(make, url) if is_table else make(url), ""
    except SpecError as error:
        return with_causes(error), error.code


def test_passwords_are_shown_nowhere() -> None:
    draw, codes = random.Random(8), set()
    for _ in range(cases(200, 3_000)):
        password, is_raw = password_of(draw), draw.random() < 0.5
        written = password if is_raw else quote(password, safe="")
        for make, texts in urls(password, written).items():
            for url in texts:
                text, code = texts_of(make, url)
                forms = {password, written, quote(password), repr(password)[1:-1]}
                assert not [form for form in forms if form in text], (url, text)
                assert END not in text, (url, text)
                assert make is not outbox or code, url
                is_free = f"password = {password}" in url  # not a form for every password
                assert code in {"", "PASSWORD_IN_URL"} or is_raw or is_free, (url, text)
                codes.add(code)
    assert codes == {"", "NOT_A_URL", "PASSWORD_IN_URL"}
