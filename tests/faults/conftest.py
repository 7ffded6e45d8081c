"""How often each fault was made: `FAULTS_TALLY=file make slow`, then `python tests/faults/tally.py file` prints the table."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from panther.storage.fingerprints import LineLog


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Callable[..., None]:
    def note(fault: str, times: int = 1) -> None:
        if place := os.environ.get("FAULTS_TALLY"):
            LineLog(Path(place)).append([fault, times, request.node.nodeid])

    return note
