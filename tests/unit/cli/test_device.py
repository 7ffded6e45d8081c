"""`--device auto`: a GPU that is there is used, and said; one that is not, or cannot be used, is no reason to fail."""

from types import SimpleNamespace

import pytest
import torch
from running import embed

from panther import engine
from panther.errors import InputError, Note

NAME = "A test card"


@pytest.fixture
def card(monkeypatch):
    """A machine with a GPU, as far as torch says."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: NAME)


@pytest.fixture
def works(monkeypatch):
    """... on which numbers can be put."""
    zeros = torch.zeros
    monkeypatch.setattr(torch, "zeros", lambda *shape, device=None: zeros(*shape))


def test_without_a_gpu_the_cpu_is_used_silently(monkeypatch, recwarn):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert engine.find_device("auto") == "cpu"
    assert not recwarn


def test_a_gpu_that_works_is_used_with_a_note(card, works, recwarn):
    with pytest.warns(Note, match=NAME):
        assert engine.find_device("auto") == "cuda"
    assert engine.find_device("cpu") == "cpu"
    assert engine.find_device("cuda:1") == "cuda:1"
    assert not recwarn


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU that works is there")
def test_a_gpu_that_cannot_be_used_is_refused_only_where_it_was_named(card):
    with pytest.warns(Note, match="on the CPU"):
        assert engine.find_device("auto") == "cpu"
    with pytest.raises(InputError, match=r"^device: cuda "):
        engine.find_device("cuda")


@pytest.mark.filterwarnings("ignore::panther.errors.Note")
@pytest.mark.parametrize(
    ("gpus", "device", "used"), [(True, "auto", "cuda"), (False, "auto", "cpu"), (True, "cpu", "cpu")]
)
def test_the_workers_of_a_cluster_count_and_not_a_gpu_here(card, works, gpus, device, used):
    assert engine.cluster_device(SimpleNamespace(has_gpus=gpus, address="A"), device) == used


def test_a_gpu_that_no_worker_announces_is_refused():
    with pytest.raises(InputError, match=r"device.*cuda"):
        engine.cluster_device(SimpleNamespace(has_gpus=False, address="A"), "cuda")


@pytest.mark.parametrize(
    ("cores", "free", "workers"), [(1, 140, 1), (8, 140, 7), (64, 140, 15), (16, 6, 6), (16, 0.3, 1)]
)
def test_a_large_job_on_a_gpu_leaves_a_core_to_the_process_that_collects(cores, free, workers, monkeypatch):
    monkeypatch.setattr(engine.SESSION, "is_command", True)  # which may start processes
    monkeypatch.setattr(engine, "cores", lambda: cores)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(free * 1e9), 0))
    assert engine.count_processes("auto", None, "cuda") == workers
    assert engine.count_processes("auto", None, "mps") >= workers  # which does not report its free memory
    assert engine.count_processes("auto", None, "cpu") == cores


def test_a_refused_device_names_the_parameter(panther, cohort):
    _, err = panther(*embed("--device", "moon"), code=2)
    assert err.startswith("panther: --device: moon")
    assert err.count("\n") == 1
