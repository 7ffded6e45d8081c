"""A Dask cluster on this machine, for as long as a command runs."""

import logging
import os
from typing import Any

from panther.clusters.executor import GPU
from panther.errors import InputError
from panther.workers import cores

HERE = "127.0.0.1"


def local_cluster(workers: int = 0) -> Any:
    """``workers`` processes (0: one per core); as many of them as there are GPUs announce one each, and see no other."""
    from distributed import Nanny, Scheduler, SpecCluster

    if workers < 0:
        raise InputError(f"`workers={workers}` makes no sense; give 0 for one per core, or a number of processes.")
    count, cards = workers or cores(), _cards()
    specs = {number: {"cls": Nanny, "options": _options(number, cards)} for number in range(max(count, len(cards)))}
    scheduler = {"cls": Scheduler, "options": {"host": HERE, "port": 0, "dashboard": False, "dashboard_address": ":0"}}
    return SpecCluster(specs, scheduler, silence_logs=logging.CRITICAL, name="panther")


def _options(number: int, cards: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {
        "host": HERE,
        "nthreads": 1,
        "memory_limit": 0,  # the work is done by a process of the worker, whose memory Dask would not see
        "dashboard": False,
        "silence_logs": logging.CRITICAL,
    }
    if number < len(cards):
        options |= {"resources": {GPU: 1}, "env": {"CUDA_VISIBLE_DEVICES": cards[number]}}
    return options


def _cards() -> list[str]:
    """What each visible GPU is called."""
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    visible = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    return visible.split(",")[:count] if visible else [str(number) for number in range(count)]
