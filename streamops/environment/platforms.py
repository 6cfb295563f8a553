"""The managed runtimes of Spark, as they are recognised, and what differs on them."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# Files by which a runtime shows itself where it does not set its variables, such as in the shell of a node.
_DATABRICKS = "databricks/DBR_VERSION"
_EMR = "mnt/var/lib/info/extraInstanceData.json"
_FABRIC = "home/trusted-service-user/.trident-context"
_VARIABLES = "etc/environment"


@dataclass(frozen=True, slots=True)
class Platform:
    """A managed runtime.

    Parameters
    ----------
    name : str
        Its name.
    version : str
        Its version; empty if the runtime does not show it.
    serverless : bool
        Whether Spark runs elsewhere: Java and the Python workers cannot be examined from here.
    limits : tuple of (str, str)
        What does not work on it, and what works instead.
    """

    name: str
    version: str = ""
    serverless: bool = False
    limits: tuple[tuple[str, str], ...] = ()


_DATABRICKS_SERVERLESS = (
    (
        "queries without a trigger, or with the trigger processingTime",
        ".trigger(availableNow=True), in a job that runs again and again",
    ),
    (
        "jars of sources, and rewriting a checkpoint",
        "compute with dedicated access mode",
    ),
)


def recognise(environ: Mapping[str, str] | None = None, root: Path = Path("/")) -> Platform | None:
    """Recognise the managed runtime of this process by its variables and files.

    Parameters
    ----------
    environ : mapping, optional
        The environment; by default that of this process.
    root : Path, default "/"
        The root of the file system.

    Returns
    -------
    Platform or None
        None for a machine of one's own, a container or another platform.
    """
    environ = os.environ if environ is None else environ
    version = environ.get("DATABRICKS_RUNTIME_VERSION") or _read(root / _DATABRICKS).strip()
    if version.startswith("client."):  # the version of the environment, not of the server
        version = version.removeprefix("client.")
        return Platform("Databricks serverless", version, True, _DATABRICKS_SERVERLESS)
    if version:
        return Platform("Databricks Runtime", version)
    if (root / _FABRIC).exists():
        return Platform("Microsoft Fabric")
    if environ.get("AZURE_SERVICE") == "Microsoft.ProjectArcadia":
        return Platform("Azure Synapse")
    if "GLUE_VERSION" in environ or "GLUE_PYTHON_VERSION" in environ:
        return Platform("AWS Glue", environ.get("GLUE_VERSION", ""))
    if (root / _EMR).exists():
        return Platform("Amazon EMR", _emr_release(_read(root / _EMR)))
    version = environ.get("DATAPROC_IMAGE_VERSION") or _dataproc_image(_read(root / _VARIABLES))
    if version or "DATAPROC_WORKLOAD_TYPE" in environ:
        return Platform("Google Dataproc", version)
    return None


def _read(path: Path) -> str:
    with suppress(OSError):
        return path.read_text(errors="replace")
    return ""


def _emr_release(text: str) -> str:
    with suppress(ValueError):
        facts = json.loads(text)
        if isinstance(facts, dict):
            return str(facts.get("releaseLabel", "")).removeprefix("emr-")
    return ""


def _dataproc_image(text: str) -> str:
    line = re.search(r"^DATAPROC_IMAGE_VERSION=\"?([^\"\s]+)", text, re.MULTILINE)
    return line[1] if line else ""
