"""The five supervised networks: forward + backward of one bag, time and peak memory, beside torchmil where it has them.

`python benchmarks/mil.py` needs no arguments (and torchmil, for the comparison); `--device cuda` on a GPU, `--busy` where others use the cores too.
`--claim` trains all of them on generated bags beside PANTHER, ProtoCounts and DeepSets: does attention win on needles, and cardinality on
mixtures? With `--cells FILE` it goes on after a stop.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

import _harness as harness
from _mil_claim import claim
from panther.mil import build_model, count_parameters, networks
from panther.types import Prototypes

DIM, OUTPUTS, PROTOTYPES = 1024, 1, 16  # one output: torchmil has one
PATCHES = {1_000: 5, 15_000: 3, 100_000: 1}  # and rounds


class Peer(nn.Module):
    """torchmil's network behind the same first layer, with the same widths."""

    def __init__(self, name: str) -> None:
        super().__init__()
        from torchmil import models

        first = nn.Sequential(nn.Linear(DIM, 512), nn.ReLU())
        make: dict[str, Callable[[], nn.Module]] = {
            "abmil": lambda: models.ABMIL((DIM,), att_dim=384, gated=True, feat_ext=first),
            "transmil": lambda: models.TransMIL((DIM,), att_dim=512, n_heads=8, n_landmarks=256, feat_ext=first),
            "dsmil": lambda: models.DSMIL((DIM,), att_dim=128, nonlinear_q=True, nonlinear_v=True, feat_ext=first),
        }
        self.network, self.streams = make[name](), name == "dsmil"

    def forward(self, x: Tensor) -> Tensor:
        if not self.streams:
            return self.network(x)
        bag, instances = self.network(x, return_inst_pred=True)
        return torch.stack([bag, instances.amax(-1)])  # both are trained, as its compute_loss does, and as ours are


PEERS = ("abmil", "transmil", "dsmil")


def ours(name: str, device: str) -> nn.Module:
    prototypes = Prototypes(torch.randn(PROTOTYPES, DIM, generator=torch.Generator().manual_seed(1)))
    return build_model(name, DIM, OUTPUTS, prototypes, {"dropout": 0.0}).to(device)


def step(model: nn.Module, x: Tensor) -> None:
    """Forward and backward of one bag, as a trainer does it."""
    outputs = model(x)
    (outputs if isinstance(outputs, Tensor) else outputs.logits).square().sum().backward()
    model.zero_grad(set_to_none=True)


def bag(patches: int, device: str) -> Tensor:
    return torch.randn(1, patches, DIM, generator=torch.Generator().manual_seed(0)).to(device)


@contextmanager
def prepared(side: str, name: str, patches: int, threads: int) -> Iterator[Callable[[], Any]]:
    torch.set_num_threads(threads)
    model = ours(name, "cpu") if side == "ours" else Peer(name)
    x = bag(patches, "cpu")
    step(model, x[:, :300])
    yield lambda: step(model, x)


def peak_megabytes(side: str, name: str, patches: int, device: str, model: nn.Module) -> float | str:
    if device == "cpu":
        try:
            return harness.peak_extra(prepared, side, name, patches, torch.get_num_threads())
        except RuntimeError:  # the kernel ended it
            return "out of memory"
    x = bag(patches, device)
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step(model, x)
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def cpu_seconds(sides: Mapping[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Median CPU seconds of each side, interleaved after one warm-up: what remains comparable where others use the cores too."""
    found: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(rounds + 1):
        for name, side in sides.items():
            start = time.process_time()
            side()
            found[name].append(time.process_time() - start)
    return {name: statistics.median(values[1:]) for name, values in found.items()}


def measure(name: str, patches: int, rounds: int, device: str, peers: bool, how: argparse.Namespace) -> list[str]:
    """Row of the table: both sides in one process, interleaved."""
    x = bag(patches, device)
    models = {"ours": ours(name, device)} | ({"torchmil": Peer(name).to(device)} if peers and name in PEERS else {})
    synchronise = torch.cuda.synchronize if device == "cuda" else lambda: None
    sides = {side: (lambda m=model: step(m, x)) for side, model in models.items()}
    clock = partial(harness.interleaved, warm_up=1 if patches < 100_000 else 0, synchronise=synchronise)
    seconds = (cpu_seconds if how.busy else clock)(sides, rounds)
    measured = {} if how.time_only else models
    memory = {side: peak_megabytes(side, name, patches, device, model) for side, model in measured.items()}
    shown = {side: m if isinstance(m, str) else f"{m:.0f}" for side, m in memory.items()}
    ratio = f"{seconds['torchmil'] / seconds['ours']:.2f}x" if "torchmil" in seconds else "-"
    peer = f"{seconds['torchmil'] * 1e3:.1f}" if "torchmil" in seconds else "-"
    parameters = f"{count_parameters(models['ours']):,}"
    return [
        name,
        f"{patches:,}",
        parameters,
        f"{seconds['ours'] * 1e3:.1f}",
        shown.get("ours", "-"),
        peer,
        shown.get("torchmil", "-"),
        ratio,
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu", choices=("cpu", "cuda"))
    parser.add_argument("--patches", type=int, nargs="*", default=list(PATCHES), help="bag sizes")
    parser.add_argument("--networks", nargs="*", default=networks.names())
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--time-only", action="store_true", help="without memory, which takes processes of its own")
    parser.add_argument(
        "--busy", action="store_true", help="CPU seconds instead of the clock, where others use the cores too"
    )
    parser.add_argument("--rounds", type=int, help="instead of 5, 3 and 1 by bag size")
    parser.add_argument("--alone", action="store_true", help="without torchmil")
    parser.add_argument(
        "--claim", action="store_true", help="the needle and panoramic tasks instead of time and memory"
    )
    parser.add_argument("--seeds", type=int, default=5, help="worlds of --claim")
    parser.add_argument("--processes", type=int, default=0, help="trainings of --claim at a time; all cores by default")
    parser.add_argument("--cells", type=Path, help="file of finished trainings of --claim, to go on after a stop")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    print(harness.machine("torchmil"))
    if arguments.claim:
        claim(arguments.seeds, arguments.networks, arguments.device, arguments.processes, arguments.cells)
        return
    peers = not arguments.alone and harness._version("torchmil") != "not installed"
    print(
        f"Forward + backward of one bag, {DIM} features float32, {torch.get_num_threads()} threads, on {arguments.device}; medians"
        f"{' of CPU time' if arguments.busy else ''}."
    )
    rows = []
    for patches in arguments.patches:
        rounds = arguments.rounds or PATCHES.get(patches, 3) * (5 if arguments.device == "cuda" else 1)
        for name in arguments.networks:
            rows.append(measure(name, patches, rounds, arguments.device, peers, arguments))
            print(*rows[-1], sep="  ", flush=True)
    header = ["network", "patches", "parameters", "ms", "peak extra MB", "torchmil ms", "torchmil MB", "ratio"]
    harness.table("Five networks", header, rows)
    ratios = [float(row[-1][:-1]) for row in rows if row[-1] != "-"]
    if ratios:
        print(
            f"\nSlowest ratio {min(ratios):.2f}x, median {statistics.median(ratios):.2f}x (target: at least 1.0x everywhere)."
        )


if __name__ == "__main__":
    main()
