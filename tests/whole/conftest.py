"""What the tests of the whole share: a real model."""

from pathlib import Path

import pytest

from tests.support import real


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """Folder of SmolLM2-135M-Instruct."""
    try:
        return real.smollm2()
    except ConnectionError as error:
        pytest.skip(f"SmolLM2 cannot be downloaded: {error}")
