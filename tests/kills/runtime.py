"""Kill what a driver runs on: Python workers, executors, PostgreSQL, the Kafka broker."""

from __future__ import annotations

import itertools
import json
import signal
import time
from typing import Any

from tests.kills.campaign import Campaign
from tests.kills.inputs import FORMS, Form
from tests.kills.processes import Driver, send
from tests.kills.rounds import ROWS, Report, Round
from tests.kills.targets import left_behind
from tests.kills.tasks import interrupted

_SPARE = 6  # micro-batches of a round in which nothing is killed
_TASKS = 6  # micro-batches of a round in which tasks end
_MOST_DOWN = 1.0  # seconds that a server is down before it is started again


def kill_workers(campaign: Campaign, report: Report, kills: int) -> None:
    """Kill Python workers of Spark."""
    _kill_processes(campaign, report, kills, "changes")


def kill_executors(campaign: Campaign, report: Report, kills: int) -> None:
    """Kill executors of a cluster of two."""
    _kill_processes(campaign, report, kills, "revisions", executors=True)


def kill_tasks(campaign: Campaign, report: Report, kills: int) -> None:
    """Let attempts of tasks end between delivery and receipt, and kill both executors now and then."""
    for number in itertools.count():
        missing = kills - report.kills.total()
        if missing <= 0 or report.problems:
            return
        form = FORMS[number % len(FORMS)]
        round_ = campaign.round("tasks", form, batches=_TASKS, executors=True, in_tasks=True)

        def attack(driver: Driver, round_: Round = round_) -> None:
            is_done = False
            for batch in round_.open_batches(driver):
                if batch >= _TASKS // 2 and not is_done:
                    is_done = True
                    send(driver.executors(), signal.SIGKILL)
                    report.record("both executors", round_.state())
                    campaign.report(f"tasks: both executors killed in micro-batch {batch}")

        round_.run(attack)
        _finish(campaign, report, round_)


def run_copies(campaign: Campaign, report: Report, copies: int) -> None:
    """Let tasks be slow between delivery and receipt until Spark has run copies of them."""
    for number in itertools.count():
        if report.kills.total() >= copies or report.problems:
            return
        form = FORMS[number % len(FORMS)]
        settings = {"executors": True, "hosts": True, "in_tasks": True}
        round_ = campaign.round("copies", form, batches=_TASKS, **settings)
        round_.run(lambda driver: None)
        _finish(campaign, report, round_)


def _finish(campaign: Campaign, report: Report, round_: Round) -> None:
    """Compare the targets of a round whose tasks wrote them, and look for what was left."""
    found = interrupted(round_.settings.tasks)
    if not found:
        report.problems.append(f"no task of {round_.folder.name} was interrupted")
    report.kills.update(found)
    at = round_.settings.location
    for target in round_.settings.targets:
        report.problems += (f"{target} has left {name}" for name in left_behind(target, at))
    campaign.finish(report, round_)


def _kill_processes(
    campaign: Campaign, report: Report, kills: int, form: Form, **settings: Any
) -> None:
    while report.kills.total() < kills:
        missing = kills - report.kills.total()
        round_ = campaign.round(report.part, form, batches=missing + _SPARE, **settings)

        def attack(driver: Driver, round_: Round = round_) -> str | None:
            pids = driver.executors() if report.part == "executors" else driver.workers()
            if not pids:
                return None
            send([round_.random.choice(pids)], signal.SIGKILL)
            return "executor" if report.part == "executors" else "Python worker"

        campaign.attack_batches(report, round_, kills, attack)


def kill_postgres(campaign: Campaign, report: Report, kills: int) -> None:
    """Kill the PostgreSQL server: every second time with the processes that serve connections."""
    server = campaign.postgres

    def attack(driver: Driver) -> str:
        everything = report.kills.total() % 2 == 1
        server.kill(everything=everything)
        time.sleep(campaign.random.uniform(0, _MOST_DOWN))
        server.start()
        return "all processes of the server" if everything else "its first process"

    while report.kills.total() < kills:
        missing = kills - report.kills.total()
        round_ = campaign.round("postgres", "changes", batches=missing + _SPARE, spare=True)
        campaign.attack_batches(report, round_, kills, attack)


def kill_kafka(campaign: Campaign, report: Report, kills: int) -> None:
    """Kill the Kafka broker that the rows are read from, and written to."""
    broker = campaign.kafka

    def attack(driver: Driver) -> str:
        broker.kill()
        time.sleep(campaign.random.uniform(0, _MOST_DOWN))
        broker.start()
        return "broker"

    while report.kills.total() < kills:
        missing = kills - report.kills.total()
        topic = broker.create_topic()
        round_ = campaign.round(
            "kafka", "revisions", batches=missing + _SPARE, topic=topic, rows=ROWS
        )
        broker.produce(topic, records(round_))
        campaign.attack_batches(report, round_, kills, attack)


def records(round_: Round) -> list[dict[str, Any]]:
    """The rows of a round as records. Each micro-batch has equally many, so the last ones are filled up."""
    found = []
    for table in round_.tables:
        rows = table.to_pylist()
        rows += rows[-1:] * (ROWS - len(rows))
        found += [{"value": json.dumps(row, default=lambda time: time.isoformat())} for row in rows]
    return found
