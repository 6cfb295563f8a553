"""The shop of `systems_in_sync.py`: its database, what happens in it, and the four systems that follow it.

A trigger writes every change of a row to the outbox, in the transaction of the change.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import numpy.typing as npt
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from tests.servers import installed

if TYPE_CHECKING:
    from psycopg import Connection

    from tests.servers.opensearch import Server as OpenSearch
    from tests.servers.redis import Server as Redis

__all__ = ["TABLES", "Shop", "Tables", "changes_of", "die", "race", "running", "warehouse_in"]

TABLES = {
    "products": "id bigint, name string, cents bigint",
    "stock": "id bigint, pieces bigint",
    "orders": "id bigint, product bigint, pieces bigint, status string",
}
"""The columns of the tables of the shop; the first one is the key."""

Tables: TypeAlias = dict[str, dict[int, dict[str, Any]]]
"""The rows of the tables, by key."""

# The number of a change is drawn while its row is locked: the numbers of a row have the order of its commits.
_OUTBOX = """
CREATE TABLE outbox (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, aggregatetype text, aggregateid text,
    type text, payload jsonb
);
CREATE FUNCTION publish() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO outbox (aggregatetype, aggregateid, type, payload) VALUES (
        TG_TABLE_NAME, coalesce(NEW.id, OLD.id), TG_OP,
        jsonb_build_object('before', to_jsonb(OLD), 'after', to_jsonb(NEW))
    );
    RETURN NULL;
END $$;
"""
_TABLE = """
CREATE TABLE {name} ({columns}, PRIMARY KEY (id));
CREATE TRIGGER publish AFTER INSERT OR UPDATE OR DELETE ON {name}
    FOR EACH ROW EXECUTE FUNCTION publish();
"""


@dataclass(frozen=True)
class Shop:
    """The database of the shop, and the systems that follow it.

    Parameters
    ----------
    database : str
        Address of PostgreSQL, where the shop writes.
    index : Server
        OpenSearch, with an index per table.
    cache : Server
        Redis, with a key per row.
    warehouse : dict of str to str
        The catalog of Iceberg tables.
    mirror : str
        Address of MariaDB.
    """

    database: str
    index: OpenSearch
    cache: Redis
    warehouse: dict[str, str]
    mirror: str

    def connect(self) -> Connection[Any]:
        """A connection of the shop, each statement of which is a transaction unless it begins one."""
        import psycopg

        return psycopg.connect(self.database, autocommit=True)

    def create_tables(self) -> None:
        """Create the tables of the shop and its outbox."""
        with self.connect() as connection:
            connection.execute(_OUTBOX)
            for name, columns in TABLES.items():
                connection.execute(
                    _TABLE.format(name=name, columns=columns.replace("string", "text")).encode()
                )

    def trade(self, transactions: int, seed: int = 0) -> None:
        """Open new products, change prices, take, ship and cancel orders, and drop products, at random."""
        rng = random.Random(seed)
        with self.connect() as connection:
            for _ in range(transactions):
                with connection.transaction():
                    _happen(rng, connection)

    def contents(self) -> dict[str, Tables]:
        """The rows that each system has, as its own client reads them."""
        readers = {
            "database": self._read_database,
            "index": self._read_index,
            "cache": self._read_cache,
            "warehouse": self._read_warehouse,
            "mirror": self._read_mirror,
        }
        return {
            name: {
                table: {row["id"]: _columns(table, row) for row in read(table)} for table in TABLES
            }
            for name, read in readers.items()
        }

    def differences(self) -> dict[str, int]:
        """How many rows of each system are missing, too many, or have other values than in the database."""
        systems = self.contents()
        database = systems.pop("database")
        return {
            name: sum(
                database[table].get(key) != rows.get(key)
                for table, rows in tables.items()
                for key in {*database[table], *rows}
            )
            for name, tables in systems.items()
        }

    def _read_database(self, table: str) -> Iterator[dict[str, Any]]:
        with self.connect() as connection:
            for (row,) in connection.execute(f"SELECT to_jsonb({table}) FROM {table}".encode()):
                yield row

    def _read_index(self, table: str) -> Iterator[dict[str, Any]]:
        if "error" not in self.index.request("GET", f"/{table}"):
            yield from (found["_source"] for found in self.index.documents(table).values())

    def _read_cache(self, table: str) -> Iterator[dict[str, Any]]:
        with self.cache.connect() as client:
            yield from (json.loads(client.get(key)) for key in client.keys(f"{table}:*"))

    def _read_warehouse(self, table: str) -> Iterator[dict[str, Any]]:
        from pyiceberg.catalog import load_catalog

        catalog, name = load_catalog(**self.warehouse), f"shop.{table}"
        if catalog.table_exists(name):
            yield from catalog.load_table(name).scan().to_arrow().to_pylist()

    def _read_mirror(self, table: str) -> Iterator[dict[str, Any]]:
        import sqlalchemy

        engine = sqlalchemy.create_engine(self.mirror, poolclass=sqlalchemy.NullPool)
        if sqlalchemy.inspect(engine).has_table(table):
            with engine.connect() as connection:
                rows = connection.execute(sqlalchemy.text(f"SELECT * FROM {table}"))
                yield from (dict(row) for row in rows.mappings())


@contextmanager
def running(folder: Path) -> Iterator[Shop]:
    """Start the servers, yield the shop, and stop them. Exit if one of them is not installed."""
    with ExitStack() as stack:
        start: Callable[..., Any] = stack.enter_context
        database, index = start(installed.postgres()), start(installed.opensearch())
        cache, mirror = start(installed.redis()), start(installed.mariadb())
        if None in (database, index, cache, mirror):
            sys.exit(
                "A server or its client is not installed: apt-get install postgresql redis-server "
                "mariadb-server; scripts/get-opensearch"
            )
        shop = Shop(database.url, index, cache, warehouse_in(folder), mirror.url())
        shop.create_tables()
        yield shop


def warehouse_in(folder: Path) -> dict[str, str]:
    """A catalog of Iceberg tables in a folder."""
    where = {"uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}/warehouse"}
    return {"name": "shop", "type": "sql", **where}


def changes_of(table: str, events: DataFrame) -> DataFrame:
    """The changes of a table that events of the outbox describe, with the row before and the row after."""
    row, is_update = f"struct<{TABLES[table]}>", F.col("event_type") == "UPDATE"
    event = F.from_json("payload", f"before {row}, after {row}")
    before = F.when(is_update, "update_preimage").otherwise("delete")
    after = F.when(is_update, "update_postimage").otherwise("insert")
    images = F.array(
        F.struct(event["before"].alias("row"), before.alias("_change_type")),
        F.struct(event["after"].alias("row"), after.alias("_change_type")),
    )
    rows = events.where(F.col("aggregate_type") == table).withColumn("image", F.explode(images))
    return rows.where("image.row IS NOT NULL").select(
        "image.row.*", "image._change_type", F.col("id").cast("bigint").alias("version")
    )


def die(events: DataFrame) -> DataFrame:
    """A crash, before the sink that it is put in front of."""
    raise RuntimeError("the query dies here")


def race(shop: Shop, products: int = 10_000) -> int:
    """Two clients name each product at about the same time, and write to the database, and then to the cache themselves.

    Returns how many products have one name in the database, and the other one in the cache.
    """
    rng = np.random.default_rng(1)
    begin = rng.uniform(0, 10, (products, 2))
    database = begin + rng.exponential(5, (products, 2))
    cache = database + rng.exponential(5, (products, 2))
    upsert = "INSERT INTO products VALUES (%s, %s, 0) ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name"
    with shop.connect() as connection, connection.cursor() as cursor:
        with connection.transaction():  # or it takes a minute; the order of the writes is the same
            cursor.executemany(upsert, _in_order(database))
        cursor.execute("SELECT id, name FROM products")
        names = dict(cursor.fetchall())
    with shop.cache.connect() as client, client.pipeline(transaction=False) as pipeline:
        for product, name in _in_order(cache):
            pipeline.set(f"both-products:{product}", name)
        pipeline.execute()
        cached = client.mget(f"both-products:{product}" for product in range(products))
    return sum(names[product] != name for product, name in enumerate(cached))


def _in_order(times: npt.NDArray[np.float64]) -> list[tuple[int, str]]:
    """The writes of the two clients of each product, in the order of their times."""
    return [(int(at) // 2, f"of client {at % 2}") for at in np.argsort(times, axis=None)]


def _columns(table: str, row: dict[str, Any]) -> dict[str, Any]:
    """A row without what a system adds."""
    return {name: row[name] for name in (part.split()[0] for part in TABLES[table].split(", "))}


def _happen(rng: random.Random, connection: Connection[Any]) -> None:
    """One of the transactions of the shop."""

    def ids(sql: str) -> list[int]:
        return [key for (key,) in connection.execute(sql.encode())]

    def execute(sql: str, *values: object) -> None:
        connection.execute(sql.encode(), values)

    products = ids("SELECT id FROM products ORDER BY id")
    placed = ids("SELECT id FROM orders WHERE status = 'placed' ORDER BY id")
    what, price, pieces = rng.random(), rng.randint(100, 900), rng.randint(1, 5)
    if len(products) < 10 or what < 0.1:  # a new product, or one that returns
        product = rng.choice(sorted({*range(1, 41)} - {*products}))
        execute("INSERT INTO products VALUES (%s, %s, %s)", product, f"product {product}", price)
        execute("INSERT INTO stock VALUES (%s, 100)", product)
    elif what < 0.2:
        product = rng.choice(products)
        execute("DELETE FROM products WHERE id = %s", product)
        execute("DELETE FROM stock WHERE id = %s", product)
    elif what < 0.4:
        execute("UPDATE products SET cents = %s WHERE id = %s", price, rng.choice(products))
    elif what < 0.75 or not placed:
        product = rng.choice(products)
        (order,) = ids("SELECT coalesce(max(id), 0) + 1 FROM orders")
        execute("INSERT INTO orders VALUES (%s, %s, %s, 'placed')", order, product, pieces)
        execute("UPDATE stock SET pieces = pieces - %s WHERE id = %s", pieces, product)
    elif what < 0.9:
        execute("UPDATE orders SET status = 'shipped' WHERE id = %s", rng.choice(placed))
    else:
        order = rng.choice(placed)
        execute(
            "UPDATE stock SET pieces = stock.pieces + orders.pieces FROM orders "
            "WHERE orders.id = %s AND stock.id = orders.product",
            order,
        )
        execute("DELETE FROM orders WHERE id = %s", order)
