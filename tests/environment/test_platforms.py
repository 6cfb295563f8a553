"""Managed runtimes are recognised by what they set and have."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamops.environment.platforms import recognise

FABRIC = "home/trusted-service-user/.trident-context"
EMR = "mnt/var/lib/info/extraInstanceData.json"


@pytest.mark.parametrize(
    ("environ", "files", "name", "version"),
    [
        ({"DATABRICKS_RUNTIME_VERSION": "15.4"}, {}, "Databricks Runtime", "15.4"),
        ({}, {"databricks/DBR_VERSION": "17.3\n"}, "Databricks Runtime", "17.3"),
        ({"DATABRICKS_RUNTIME_VERSION": "client.4.9"}, {}, "Databricks serverless", "4.9"),
        ({}, {FABRIC: ""}, "Microsoft Fabric", ""),
        # Fabric has the variable of Synapse, too.
        ({"AZURE_SERVICE": "Microsoft.ProjectArcadia"}, {FABRIC: ""}, "Microsoft Fabric", ""),
        ({"AZURE_SERVICE": "Microsoft.ProjectArcadia"}, {}, "Azure Synapse", ""),
        ({"GLUE_VERSION": "5.0", "GLUE_PYTHON_VERSION": "3"}, {}, "AWS Glue", "5.0"),
        ({"GLUE_PYTHON_VERSION": "3"}, {}, "AWS Glue", ""),
        ({}, {EMR: '{"releaseLabel": "emr-7.13.0"}'}, "Amazon EMR", "7.13.0"),
        ({}, {EMR: '{"jobFlowId": "j-1"}'}, "Amazon EMR", ""),
        ({}, {EMR: "not JSON"}, "Amazon EMR", ""),
        ({}, {EMR: "[1]"}, "Amazon EMR", ""),
        ({"DATAPROC_IMAGE_VERSION": "2.3"}, {}, "Google Dataproc", "2.3"),
        (
            {},
            {"etc/environment": "LANG=C\nDATAPROC_IMAGE_VERSION=2.3\n"},
            "Google Dataproc",
            "2.3",
        ),
        ({"DATAPROC_WORKLOAD_TYPE": "batch"}, {}, "Google Dataproc", ""),
    ],
)
def test_a_platform_is_recognised(
    tmp_path: Path, environ: dict[str, str], files: dict[str, str], name: str, version: str
) -> None:
    for path, text in files.items():
        (tmp_path / path).parent.mkdir(parents=True)
        (tmp_path / path).write_text(text)
    platform = recognise(environ, tmp_path)
    assert platform is not None
    assert (platform.name, platform.version) == (name, version)
    assert platform.serverless == (name == "Databricks serverless")


def test_another_machine_is_no_platform(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "environment").write_text("LANG=C\n")
    assert recognise({"AZURE_SERVICE": "other", "AWS_REGION": "x"}, tmp_path) is None
