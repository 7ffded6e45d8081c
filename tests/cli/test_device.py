"""`--device auto`: a GPU that is there is used, and said; one that is not, or cannot be used, is no reason to fail."""

from types import SimpleNamespace

import pytest
import torch
from running import Runner, embed, make_cohort

from panther.cli import _common as common
from panther.errors import InputError

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


def test_without_a_gpu_the_cpu_is_used_silently(monkeypatch, capsys):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert common.checked_device("auto") == "cpu"
    assert capsys.readouterr() == ("", "")


def test_a_gpu_that_is_there_is_used_and_said_in_one_line(card, works, capsys):
    assert common.checked_device("auto") == "cuda"
    assert capsys.readouterr().err == f"Computing on the GPU ({NAME}); --device cpu leaves it alone.\n"
    assert common.checked_device("cpu") == "cpu"
    assert common.checked_device("cuda:1") == "cuda:1"
    assert capsys.readouterr().err == ""


@pytest.mark.skipif(torch.cuda.is_available(), reason="a GPU that works is there")
def test_a_gpu_that_cannot_be_used_is_left_alone_unless_it_was_asked_for(card, capsys):
    assert common.checked_device("auto") == "cpu"
    assert "Computing on the CPU, because the GPU cannot be used" in capsys.readouterr().err
    with pytest.raises(InputError, match="'cuda' cannot be used here"):
        common.checked_device("cuda")


@pytest.mark.parametrize(
    ("gpus", "asked", "used"), [(True, "auto", "cuda"), (False, "auto", "cpu"), (True, "cpu", "cpu")]
)
def test_what_the_workers_of_a_cluster_announce_counts_and_not_a_gpu_here(card, works, gpus, asked, used):
    assert common.cluster_device(SimpleNamespace(has_gpus=gpus, address="A"), asked) == used


def test_a_gpu_that_no_worker_announces_is_refused():
    with pytest.raises(InputError, match=r"device.*cuda"):
        common.cluster_device(SimpleNamespace(has_gpus=False, address="A"), "cuda")


def test_small_jobs_stay_in_one_process_on_any_device():
    assert {common.suitable_workers(0, [], device) for device in ("cpu", "cuda")} == {1}
    assert common.suitable_workers(3, [], "cuda") == 3


@pytest.mark.parametrize(
    ("cores", "free", "workers"),
    [(1, 140, 1), (4, 140, 4), (8, 140, 7), (16, 140, 15), (64, 140, 15), (16, 6, 6), (16, 0.3, 1)],
)
def test_a_large_job_on_a_gpu_leaves_a_core_to_the_process_that_collects(cores, free, workers, monkeypatch):
    monkeypatch.setattr("panther.machine.cores", lambda: cores)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int(free * 1e9), 0))
    monkeypatch.setattr(common, "SMALL_JOB", 0)
    assert common.suitable_workers(0, [], "cuda") == workers
    assert common.suitable_workers(0, [], "mps") >= workers  # which does not say what is free
    assert common.suitable_workers(0, [], "cpu") == 0  # one per core


def test_a_refused_device_names_the_parameter(monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(tmp_path)
    make_cohort(tmp_path)
    _, err = Runner(monkeypatch, capsys)(*embed("--device", "moon"), code=2)
    assert "'moon' cannot be used here" in err
    assert "device=cpu" in err
