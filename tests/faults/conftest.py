"""How often each fault was made: `FAULTS_TALLY=file make slow`, then `python tests/faults/tally.py file` prints the table."""

import json
import os
from collections.abc import Callable

import pytest


@pytest.fixture
def tally(request: pytest.FixtureRequest) -> Callable[..., None]:
    def note(fault: str, times: int = 1) -> None:
        if place := os.environ.get("FAULTS_TALLY"):
            with open(place, "a", encoding="utf-8") as file:
                print(json.dumps([fault, times, request.node.nodeid]), file=file)

    return note
