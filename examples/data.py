"""The data of the examples: small, random and always the same, as an unreliable network delivers it."""

from __future__ import annotations

import datetime as dt
import json
import random
from collections.abc import Iterator
from typing import Any

from examples.feed import MIDNIGHT, Batches, Row, at, deliver

__all__ = [
    "card_events",
    "clicks",
    "customer_records",
    "impressions_and_clicks",
    "orders_and_prices",
    "page_views",
    "posts_authors_and_follows",
    "readings",
]

_MINUTE = dt.timedelta(minutes=1)
_PAGES = ("home", "search", "product", "basket", "paid")


def clicks() -> Batches:
    """The clicks of five users of a shop, on one day."""
    rng, rows = random.Random(1), list[Row]()
    for user in ("ada", "bob", "cat", "dan", "eve"):
        now = at(8) + rng.uniform(0, 120) * _MINUTE
        while now < at(17):
            for step in range(rng.randint(2, 9)):
                page = _PAGES[min(step, rng.randrange(len(_PAGES)))]
                rows.append({"click": len(rows), "user": user, "page": page, "at": _second(now)})
                now += rng.uniform(0.5, 15) * _MINUTE
            now += rng.uniform(45, 180) * _MINUTE
    return deliver(rows, "at")


def impressions_and_clicks() -> tuple[Batches, Batches]:
    """The impressions of three ads, and the clicks on some of them."""
    rng, impressions, clicked = random.Random(2), list[Row](), list[Row]()
    for ad, rate in (("boots", 0.04), ("coats", 0.12), ("hats", 0.08)):
        for number in range(400):
            now, key = _second(at(8) + rng.uniform(0, 360) * _MINUTE), f"{ad} {number}"
            impressions.append({"impression": key, "ad": ad, "shown_at": now})
            # At lunch they have time to look at coats.
            if rng.random() < rate * (2 if ad == "coats" and now.hour == 12 else 1):
                # Some return to a tab that was open for hours.
                wait = rng.uniform(40, 120) if rng.random() < 0.1 else rng.expovariate(1 / 4)
                row = {"click": len(clicked), "impression": key}
                clicked.append({**row, "clicked_at": _second(now + wait * _MINUTE)})
    return deliver(impressions, "shown_at"), deliver(clicked, "clicked_at", seed=2)


_CLOCKS = {  # of sensors, against the true time
    "attic": dt.timedelta(0),
    "garden": dt.timedelta(minutes=37),
    "kitchen": dt.timedelta(hours=-2),
    "roof": dt.datetime(1970, 1, 1, tzinfo=dt.UTC) - at(7, 55),  # its battery was empty
}


def readings() -> Batches:
    """The temperatures of four sensors, three of them with wrong clocks, on a day that is warmest at noon."""
    rng, rows = random.Random(3), list[Row]()
    for sensor, clock in _CLOCKS.items():
        for number in range(96):
            measured = at(8, 5 * number) + rng.uniform(0, 20) * dt.timedelta(seconds=1)
            # Sensors send every quarter of an hour. The garden was offline for hours.
            sent = at(8, 15 * (5 * number // 15 + 1)) + rng.random() * _MINUTE
            if sensor == "garden" and at(9, 50) < sent < at(14, 30):
                sent = at(14, 30) + rng.random() * _MINUTE
            celsius = 18 + 10 * 2 ** -(((measured - at(12)) / dt.timedelta(hours=1.5)) ** 2)
            row = {"sensor": sensor, "celsius": round(celsius + rng.gauss(0, 0.2), 2)}
            row |= {"measured_at": _second(measured + clock), "sent_at": _second(sent + clock)}
            wait = rng.uniform(0.2, 1) if rng.random() < 0.8 else rng.uniform(1, 40)
            rows.append({**row, "received_at": sent + wait * dt.timedelta(seconds=1)})
    return deliver(rows, "received_at", late=0)


def card_events() -> Batches:
    """Payments with cards, and confirmations by their owners; three of the cards were stolen."""
    rng, rows = random.Random(4), list[Row]()

    def add(card: str, now: dt.datetime, type_: str, amount: float | None = None) -> None:
        row = {"event": len(rows), "card": card, "type": type_, "amount": amount}
        rows.append({**row, "at": _second(now)})

    def pay(card: str, now: dt.datetime, amount: float, *, confirmed: bool) -> None:
        add(card, now, "payment", round(amount, 2))
        if confirmed:
            add(card, now + rng.uniform(0.5, 4) * _MINUTE, "confirmation")

    for number in range(30):
        card, now = f"card {number:02d}", at(8)
        while (now := now + rng.uniform(20, 180) * _MINUTE) < at(16):
            amount = rng.choice((rng.uniform(0.5, 3), rng.uniform(5, 90), rng.uniform(300, 900)))
            pay(card, now, amount, confirmed=amount > 300)
        if number % 10 == 7:  # a thief tests the card with small amounts, then buys something large
            now = at(9, number * 12)
            for _ in range(rng.randint(2, 4)):
                add(card, now, "payment", round(rng.uniform(0.5, 3), 2))
                now += rng.uniform(0.5, 2) * _MINUTE
            pay(card, now, rng.uniform(500, 900), confirmed=False)
    return deliver(rows, "at")


def customer_records() -> tuple[Batches, dict[int, Row]]:
    """Debezium's records of a table of customers, and the table in the end."""
    rng, table = random.Random(5), dict[int, Row]()
    rows = list(_change_customers(rng, table))
    damaged = {"key": '{"id": 9}', "value": '{"op": "u", "after": {"id"', "at": at(10, 7)}
    return deliver([*rows, damaged], "at", late=0.2, lateness=20 * _MINUTE, twice=0.1), table


def _change_customers(rng: random.Random, table: dict[int, Row]) -> Iterator[Row]:
    cities = ("Bergen", "Lisbon", "Oslo", "Porto", "Tromsø")
    for lsn in range(240):
        now, key = at(8, 2 * lsn), lsn + 1 if lsn < 12 else rng.randint(1, 40)
        before = table.get(key)
        if lsn >= 12 and before is not None and rng.random() < 0.2:
            del table[key]
        else:
            name = before["name"] if before else f"customer {key}"
            table[key] = {"id": key, "name": name, "city": rng.choice(cities)}
        row = table.get(key)
        source: dict[str, Any] = {"connector": "postgresql", "lsn": 24_000 + 8 * lsn}
        source |= {"ts_ms": round(now.timestamp() * 1_000), "snapshot": str(lsn < 12).lower()}
        # The table has ten customers before the connector starts: its snapshot.
        op = "d" if row is None else "r" if lsn < 12 else "u" if before else "c"
        value = {"op": op, "before": before, "after": row, "source": source}
        yield {"key": json.dumps({"id": key}), "value": json.dumps(value), "at": now}


def page_views() -> Batches:
    """The page views of three days; some visitors return every day."""
    rng, rows = random.Random(6), list[Row]()
    for day, count in enumerate((900, 1_400, 1_100)):
        for visitor in rng.sample(range(3_000), count):
            now = at(24 * day) + rng.uniform(0, 20) * dt.timedelta(hours=1)
            for _ in range(rng.randint(1, 4)):
                rows.append({"visitor": visitor, "at": _second(now)})
                now += rng.expovariate(1 / 40) * _MINUTE
    half = dt.timedelta(hours=12)
    return deliver(rows, "at", since=MIDNIGHT, every=half, late=0.02, lateness=3 * half)


def orders_and_prices() -> tuple[Batches, Batches]:
    """The orders of a day, and the versions of a price list that changes meanwhile."""
    rng, orders, prices = random.Random(7), list[Row](), list[Row]()
    for product, cents in (("apples", 300), ("bread", 420), ("coffee", 990)):
        for hour in (8, *sorted(rng.sample(range(9, 16), 3))):
            row = {"product": product, "cents": cents, "valid_from": at(hour), "version": 1}
            # Prices are published when they come into effect, at eight those of the day.
            prices.append({**row, "version": len(prices), "published_at": at(hour)})
            cents = round(cents * rng.uniform(0.08, 0.125)) * 10
    # Somebody notices at three o'clock that bread had a wrong price since eleven.
    row = {"product": "bread", "cents": 250, "valid_from": at(11), "version": len(prices)}
    prices.append({**row, "published_at": at(15)})
    for number in range(200):
        row = {"order": number, "product": rng.choice(("apples", "bread", "coffee", "dates"))}
        now = _second(at(8, rng.uniform(1, 500)))
        orders.append({**row, "pieces": rng.randint(1, 5), "ordered_at": now})
    return deliver(orders, "ordered_at"), deliver(prices, "published_at", twice=0.2)


def posts_authors_and_follows() -> tuple[Batches, Batches, Batches]:
    """Changes of three tables: posts, their authors, and who follows whom."""
    rng = random.Random(20)
    authors = [{"author": name, "name": name.title()} for name in ("ann", "ben", "cleo", "dora")]
    changes = [
        {**row, "log": n, "at": at(8), "_change_type": "insert"} for n, row in enumerate(authors)
    ]
    for type_, name in (("update_preimage", "Ben"), ("update_postimage", "Benjamin")):
        row: Row = {"author": "ben", "name": name, "log": 4, "at": at(12)}
        changes.append({**row, "_change_type": type_})
    posts = list[Row]()
    for number in range(24):
        row = {"post": number, "author": rng.choice(authors)["author"]}
        row |= {"text": f"post {number}", "posted_at": at(8, 15 * number + 1), "log": 2 * number}
        posts.append({**row, "at": row["posted_at"], "_change_type": "insert"})
        if rng.random() < 0.2:
            later = row["posted_at"] + rng.uniform(10, 90) * _MINUTE
            posts.append({**row, "log": 2 * number + 1, "at": later, "_change_type": "delete"})
    follows = list[Row]()
    for user in ("uma", "vic", "wei"):
        for whom in rng.sample(authors, 2):
            row = {"user": user, "whom": whom["author"], "log": len(follows)}
            row["at"] = at(8, rng.uniform(0, 120))
            follows.append({**row, "_change_type": "insert"})
    # Vic has read enough of the first author.
    first = next(row for row in follows if row["user"] == "vic")
    follows.append({**first, "log": len(follows), "at": at(13), "_change_type": "delete"})

    def send(rows: list[Row], seed: int) -> Batches:
        return deliver(rows, "at", late=0.1, lateness=90 * _MINUTE, twice=0.2, seed=seed)

    return send(posts, 0), send(changes, 1), send(follows, 2)


def _second(time: dt.datetime) -> dt.datetime:
    return time.replace(microsecond=0)
