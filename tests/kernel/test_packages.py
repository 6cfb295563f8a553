"""Optional packages."""

from __future__ import annotations

import json
import re

import pytest

from streamops.errors import RequirementError
from streamops.kernel.parameters import require_package
from website import errors


def test_a_package_that_is_installed_is_imported() -> None:
    assert require_package("json", package="json", extra="x") is json


def test_the_error_of_a_missing_package_has_the_command_that_installs_it() -> None:
    with pytest.raises(RequirementError, match="PACKAGE_MISSING") as raised:
        require_package("no_such_package_", package="driver", extra="db")
    assert raised.value.fix.startswith("pip install 'streamops[db]'. ")


def test_a_remedy_that_installs_an_extra_keeps_the_packages_of_a_runtime() -> None:
    """But for Spark and Java, which a runtime has, and a package of which a newer one is needed."""
    fixes = {name: condition.fix for name, condition in errors.conditions().items()}
    installing = {
        name for name, fix in fixes.items() if re.search(r"streamops\[(?!java|spark)", fix)
    }
    held = {name for name in installing if "-c installed.txt" in fixes[name]}
    assert len(held) >= 3
    assert {name.rpartition(".")[2] for name in installing - held} == {"PACKAGE_TOO_OLD"}
