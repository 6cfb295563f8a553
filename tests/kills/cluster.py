"""A cluster of Spark whose two workers are on hosts of their own, as speculation needs them."""

from __future__ import annotations

import os
import subprocess
import time
from pathlib import Path

import pyspark

from tests.kafka.broker import free_port

MASTER, HOSTS = "127.0.0.1", ("127.0.0.2", "127.0.0.3")
"""All are this machine. Spark starts no second attempt on the host of the first one."""
_MEMORY = "2g"


def start(folder: Path) -> str:
    """Start the master and the workers in the process group of this process; return the address of the master."""
    port = free_port()
    master = f"spark://{MASTER}:{port}"
    _start(folder, "master.Master", "--host", MASTER, "--port", str(port), "--webui-port", "0")
    for host in HOSTS:
        options = "--host", host, "--cores", "1", "--memory", _MEMORY, "--webui-port", "0"
        _start(folder, "worker.Worker", *options, "--work-dir", str(folder / host), master)
    return master


def _start(folder: Path, name: str, *arguments: str) -> None:
    jars = Path(pyspark.__file__).parent / "jars" / "*"
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / f"{name}-{time.monotonic_ns()}.log").open("wb") as log:
        subprocess.Popen(
            ["java", "-Xmx256m", "-cp", str(jars), f"org.apache.spark.deploy.{name}", *arguments],
            stdout=log,
            stderr=log,
            env=os.environ | {"SPARK_HOME": str(jars.parents[1]), "SPARK_SCALA_VERSION": "2.13"},
        )
