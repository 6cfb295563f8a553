"""Optional packages."""

from __future__ import annotations

import json

import pytest

from streamops.errors import RequirementError
from streamops.kernel.parameters import require_package


def test_a_package_that_is_installed_is_imported() -> None:
    assert require_package("json", package="json", extra="x") is json


def test_the_error_of_a_missing_package_has_the_command_that_installs_it() -> None:
    with pytest.raises(RequirementError, match="PACKAGE_MISSING") as raised:
        require_package("no_such_package_", package="driver", extra="db")
    assert raised.value.fix == "pip install 'streamops[db]'"
