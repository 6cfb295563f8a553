"""Parameters of an outbox are checked before a server sees them; passwords are refused and not shown."""

from __future__ import annotations

import json
from typing import Any

import pytest

from streamops import sources
from streamops.errors import SpecError
from streamops.sources.outbox_source import OutboxParameters, OutboxSource

pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")

URL = "postgresql://spark@db/shop"


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ({"url": ""}, "NOT_A_URL"),
        ({"url": None}, "NOT_A_URL"),
        ({"url": "db.example.com"}, "NOT_A_URL"),
        ({"url": "jdbc:postgresql://db/shop"}, "NOT_A_URL"),
        ({"table": ""}, "PARAMETER_TYPE"),
        ({"schema": None}, "PARAMETER_TYPE"),
        ({"publication": ""}, "PARAMETER_TYPE"),
        ({"slot": "Shop"}, "INVALID_PARAMETER"),
        ({"slot": "shop'; --"}, "INVALID_PARAMETER"),
        ({"slot": "x" * 64}, "INVALID_PARAMETER"),
        ({"slot": 5}, "PARAMETER_TYPE"),
        ({"create": "replace"}, "UNKNOWN_CHOICE"),
        ({"max_rows": 0}, "PARAMETER_OUT_OF_RANGE"),
        ({"max_rows": 1.5}, "PARAMETER_OUT_OF_RANGE"),
        ({"max_rows": True}, "PARAMETER_OUT_OF_RANGE"),
        ({"columns": {"aggregateid": "order_id"}}, "PARAMETER_TYPE"),
        ({"columns": ["id"]}, "PARAMETER_TYPE"),
        ({"columns": {"id": ""}}, "PARAMETER_TYPE"),
        ({"columns": {"id": "payload"}}, "DUPLICATE_COLUMN"),
        ({"keep": ["a", "a"]}, "DUPLICATE_COLUMN"),
        ({"keep": ["payload"]}, "NAME_TAKEN"),
        ({"keep": ["Event_Type"]}, "NAME_TAKEN"),
        ({"keep": ["_lsn"]}, "NAME_TAKEN"),
        ({"keep": ["rejected"]}, "NAME_TAKEN"),
    ],
)
def test_parameters_are_refused(arguments: dict[str, Any], code: str) -> None:
    with pytest.raises(SpecError) as raised:
        sources.outbox(**{"url": URL, "slot": "shop", **arguments})
    assert raised.value.code == code


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://spark:hunter2@db/shop",
        "postgres://spark:hunter2@db1,db2/shop",
        "postgresql://spark:hunter2@[::1]:5432/shop",
        "postgresql://:hunter2@db/shop",
        "postgresql://db/shop?password=hunter2",
        "postgresql://db/shop?sslmode=require&pass%77ord=hunter2",
        "postgresql://db/shop?sslpassword=hunter2",
        "postgresql://db/shop?oauth_client_secret=hunter2",
        "host=db password=hunter2",
        "host=db password = 'hunter2'",
        "host=db PASSWORD=hunter2",
        "postgresql:/spark:hunter2@db/shop",
        "host=db hunter2",
    ],
)
def test_a_password_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(SpecError) as raised:
        sources.outbox(url, slot="shop")
    assert raised.value.code in ("PASSWORD_IN_URL", "NOT_A_URL")
    assert "hunter2" not in str(raised.value)
    assert "PGPASSWORD" in raised.value.fix


@pytest.mark.parametrize(
    "url",
    [
        URL,
        "postgres://db",
        "postgresql://",
        "postgresql://spark@db1:5432,db2:5433/shop?target_session_attrs=read-write",
        "postgresql://[::1]:5432/shop?sslcert=c.pem&sslkey=k.pem&passfile=/home/spark/.pgpass",
        "postgresql:///shop?host=/var/run/postgresql&user=spark",
        "host=/tmp/x user=tokens dbname=password",
        r"host=db user='it\'s'",
        "service=shop",
    ],
)
def test_a_url_without_a_password_is_accepted(url: str) -> None:
    assert repr(sources.outbox(url, slot="shop")).startswith(f"sources.outbox({url!r}, 'outbox', ")


def test_the_repr_is_the_call() -> None:
    text = repr(sources.outbox(URL, "events", slot="shop", keep=["tenant"], create="create"))
    columns = {"id": "id", "aggregate_type": "aggregatetype", "aggregate_id": "aggregateid"}
    columns |= {"event_type": "type", "payload": "payload"}
    assert text == (
        f"sources.outbox('{URL}', 'events', slot='shop', schema='public', publication='shop', "
        f"columns={columns!r}, keep=('tenant',), create='create', max_rows=10000)"
    )


def test_the_options_of_the_data_source_are_its_parameters() -> None:
    events = sources.outbox(
        URL,
        slot="shop",
        publication='odd "one"',
        columns={"id": "key"},
        keep=["tenant"],
        max_rows=7,
    )
    options = events._parameters.to_options()
    assert OutboxParameters.from_options(options) == events._parameters
    assert json.loads(options["parameters"])["slot"] == "shop"
    schema = OutboxSource(options).schema()
    assert schema.simpleString() == (
        "struct<id:string,aggregate_type:string,aggregate_id:string,event_type:string,payload:string,"
        "_lsn:bigint,_position:int,_committed_at:timestamp,rejected:struct<reason:string,row:string>,"
        "tenant:string>"
    )
