"""A model of each kind, made once."""

from typing import Any

import pytest

from tests.support.answering import KINDS, make_model


@pytest.fixture(scope="package", params=list(KINDS))
def model(request: pytest.FixtureRequest) -> Any:
    return make_model(request.param)
