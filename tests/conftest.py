"""Shared fixture: the real data, where it is there; and worker processes that start quickly."""

import multiprocessing
import os
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Real slides, bags and tables beside the checkout."""
    if not SHARED.is_dir():
        pytest.skip("the folder ../shared/data with real slides and tables is not here")
    return SHARED


@pytest.fixture(scope="session")
def shared_tiles() -> Path:
    """Real tiles, one folder per class, beside the checkout."""
    tiles = SHARED / "tiles" / "lung"
    if not tiles.is_dir():
        pytest.skip("the folder ../shared/data/tiles with real tiles is not here")
    return tiles


@pytest.fixture(scope="module", params=["torch", "compiled"])
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """Each kernel of the CPU in turn; `pytestmark = pytest.mark.usefixtures("kernel")` runs a module over both."""
    from panther.statistics.compiled import load_library

    if request.param == "compiled" and isinstance(reason := load_library(), str):
        pytest.skip(f"there is no compiled kernel: {reason}")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PANTHER_KERNEL", request.param)
        yield request.param


def pytest_configure() -> None:
    """A busy machine prints lines of progress, which no test expects that does not ask for them."""
    os.environ["PANTHER_LOG_EVERY"] = "0"


def pytest_sessionstart() -> None:
    """Import once, in the server that workers are forked from, what a thousand short-lived workers would each import anew."""
    if "forkserver" in multiprocessing.get_all_start_methods():
        modules = ("engine", "study.results", "explain.atlas", "storage.bags")
        multiprocessing.get_context("forkserver").set_forkserver_preload([f"panther.{name}" for name in modules])
        forkserver.ensure_running()


@pytest.fixture
def one_thread():
    """Small tensors on busy cores: one thread is faster than two that wait for each other."""
    import torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)
