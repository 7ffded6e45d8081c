"""How many optimiser steps a network on bags needs in a small cohort.

`python benchmarks/mil_steps.py` needs no arguments (40 minutes of one core); `--steps` and `--networks` take parts of it. Training bags are four
fifths of cohorts of 60, 120 and 300 patients; there is no validation part, the last epoch counts. Protocol, written before the first run: candidates
are the schedule of the paper (20 epochs, 32 bags a step) and at least S = 100, 300, 1000 or 3000 steps, reached by accumulating fewer bags and, where
single bags are too few, by more epochs. Measure: mean of AUROC and balanced accuracy on unseen bags over all worlds and sizes, ABMIL. Rule: the
fewest steps within 0.01 of the best. The other networks are then trained with the old and the new schedule.
"""

import argparse
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

import _harness as harness
from _mil_worlds import Part
from panther.cohort.targets import Classes
from panther.mil import build_model, networks
from panther.models.settings import TrainSettings
from panther.models.tasks import fit_task
from panther.models.trainer import fit, mixed_seed, predict_logits
from panther.prototypes import KMeansSettings, fit_bags
from panther.types import Bag

DIM, TISSUES, TEST = 64, 5, 300
SIZES = {48: 2, 96: 2, 240: 1}  # training bags, and how many seeds
WORLDS = {
    "needles of 10 %": 0.5,
    "shares of tissues": 0.5,
    "look of a tissue, 30 % positive": 0.3,
}  # and the share of class 1
STEPS = (0, 100, 300, 1000, 3000)  # 0: 20 epochs, 32 bags a step


def schedule(bags: int, steps: int) -> TrainSettings:
    """20 epochs with 32 bags a step, or with so few that there are at least so many steps."""
    settings = TrainSettings(epochs=20, batch_size=1, accumulate=32)
    if not steps:
        return settings
    return TrainSettings(
        epochs=max(20, -(-steps // bags)), batch_size=1, accumulate=min(32, max(1, 20 * bags // steps))
    )


def drawn(world: str, bags: int, seed: int) -> tuple[Part, Part]:
    """Training and test bags of 10 to 30 patches; tissues are drawn once."""
    g = torch.Generator().manual_seed(seed)
    centres = torch.randn(TISSUES + 1, DIM, generator=g)
    shift = 2 * functional.normalize(torch.randn(DIM, generator=g), dim=0)
    centres[TISSUES] = centres[0] + 2 * shift  # a needle resembles a tissue
    return _part(world, bags, centres, shift, g), _part(world, TEST, centres, shift, g)


def _part(world: str, count: int, centres: Tensor, shift: Tensor, g: torch.Generator) -> Part:
    labels = (torch.arange(count) < WORLDS[world] * count).long()
    bags = []
    for label in labels.tolist():
        n = int(torch.randint(10, 31, (), generator=g))
        shares = 0.5 + torch.rand(TISSUES, generator=g)
        if world.startswith("shares"):
            shares[:2] = (torch.tensor([0.65, 0.35]) if label else torch.tensor([0.35, 0.65])) * shares[:2].sum()
        tissue = torch.multinomial(shares, n, True, generator=g)
        if label and world.startswith("needles"):
            tissue[: max(1, n // 10)] = TISSUES
        x = centres[tissue] + torch.randn(n, DIM, generator=g)
        if label and world.startswith("look"):
            x[tissue == 0] += shift
        bags.append(x)
    return Part(bags, labels, torch.empty(0))


class Bags:
    """One bag a batch, in an order that seed and epoch decide."""

    def __init__(self, part: Part, shuffle: bool) -> None:
        self.part, self.shuffle = part, shuffle

    def __len__(self) -> int:
        return len(self.part.bags)

    def epoch(self, epoch: int, seed: int) -> Iterator[tuple[dict[str, Any], dict[str, Tensor]]]:
        g = torch.Generator().manual_seed(mixed_seed(seed, epoch))
        for i in (torch.randperm(len(self), generator=g) if self.shuffle else torch.arange(len(self))).tolist():
            yield {"x": self.part.bags[i][None]}, {"label": self.part.labels[i : i + 1]}


def score(network: str, world: str, bags: int, settings: TrainSettings, seed: int) -> tuple[float, float]:
    """AUROC and balanced accuracy on unseen bags."""
    train, test = drawn(world, bags, seed)
    task = fit_task("cross-entropy", Classes(("without", "with"), train.labels.numpy()))
    named = [Bag(f"bag-{number}", bag) for number, bag in enumerate(train.bags)]
    prototypes = (
        fit_bags(named, KMeansSettings(n_prototypes=8, seed=seed)).prototypes if network == "attnmisl" else None
    )
    model = build_model(network, DIM, 2, prototypes, {}, seed=seed)
    fitted = fit(model, Bags(train, True), task, settings)
    logits, batch = predict_logits(fitted.model, Bags(test, False), settings)
    found = task.metrics(task.predict(logits), task.decode(batch))
    return found["auroc"], found["balanced_accuracy"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="one world of 48 bags, two schedules, ABMIL")
    parser.add_argument("--steps", type=int, nargs="*", default=STEPS, help="schedules of ABMIL")
    parser.add_argument(
        "--networks", nargs="*", default=networks.names(), help="trained with the old and the new schedule"
    )
    parser.add_argument("--chosen", type=int, default=1000, help="steps of the new schedule")
    given = parser.parse_args()
    worlds, sizes = (list(WORLDS)[:1], {48: 1}) if given.quick else (list(WORLDS), SIZES)
    torch.set_num_threads(1)
    print(harness.machine())
    rows = []
    for steps in (0, 300) if given.quick else given.steps:
        cells = []
        for bags, seeds in sizes.items():
            settings = schedule(bags, steps)
            found = [score("abmil", world, bags, settings, seed) for world in worlds for seed in range(seeds)]
            cells.append(np.mean(found, 0))
            print(steps, bags, np.round(found, 3).tolist(), flush=True)
        rows.append([str(steps or "paper"), *(f"{a:.3f} / {b:.3f}" for a, b in cells), f"{np.mean(cells):.3f}"])
    header = ["steps, at least", *(f"{bags} bags" for bags in sizes), "mean"]
    harness.table("ABMIL: AUROC / balanced accuracy on unseen bags", header, rows)
    rows = []
    for network in () if given.quick else given.networks:
        schedules = [schedule(48, steps) for steps in (0, given.chosen)]
        found = [np.mean([score(network, world, 48, one, 0) for world in worlds], 0) for one in schedules]
        rows.append([network, *(f"{a:.3f} / {b:.3f}" for a, b in found)])
        print(rows[-1], flush=True)
    header = ["network", "paper", f"{given.chosen} steps"]
    harness.table("48 bags, one seed: AUROC / balanced accuracy on unseen bags", header, rows)


if __name__ == "__main__":
    main()
