"""Generated bags for the paper's claim: needles, proportions, and mixtures with one mean. Used by _mil_claim.py."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

DIM, TISSUES = 32, 5
LENGTHS = (100, 200, 300, 400)  # a few lengths, so that bags of one length make a batch without padding
SIZES = {"val": 80, "test": 200}  # and 160 for training, or what the question says


@dataclass(frozen=True)
class Part:
    """Bags, their classes, and what nobody sees: how many patches of each tissue they have, the needle last."""

    bags: list[Tensor]  # each (n, DIM)
    labels: Tensor  # (bags,)
    counts: Tensor  # (bags, TISSUES + 1)


@dataclass(frozen=True)
class Question:
    """What the class changes in a bag."""

    shares: Callable[[Tensor, int], Tensor]  # (shares of the tissues, class) -> shares
    needles: float = 0.0  # share of patches in bags of class 1 from a tissue that class 0 never has; at least one patch
    average: bool = False  # tissue 2 is the average of tissues 0 and 1
    train: int = 160  # training bags
    epochs: int = 60  # at most
    only: str = ""  # networks that are asked, where not all are: it takes long


def _unchanged(shares: Tensor, label: int) -> Tensor:
    return shares


def _more_of_one(shares: Tensor, label: int) -> Tensor:
    """Of what tissues 0 and 1 have together, 60 % is the one or the other."""
    both = torch.tensor([0.6, 0.4] if label else [0.4, 0.6]) * shares[:2].sum()
    return torch.cat([both, shares[2:]])


def _same_mean(shares: Tensor, label: int) -> Tensor:
    """Class 1 has more of tissues 0 and 1, class 0 more of a tissue that is their average: the bags' means do not differ."""
    three = torch.tensor([0.4, 0.4, 0.2] if label else [0.27, 0.27, 0.46]) * shares[:3].sum()
    return torch.cat([three, shares[3:]])


QUESTIONS = {
    "needle, 3 %": Question(_unchanged, needles=0.03),
    "needle, 1 %": Question(_unchanged, needles=0.01),
    "needle, 1 %, 640 bags": Question(_unchanged, needles=0.01, train=640, epochs=30, only="transmil"),
    "panoramic": Question(_more_of_one),
    "same mean": Question(_same_mean, average=True),
}


def world(question: Question, seed: int) -> dict[str, Part]:
    """Training, validation and test part: tissues are drawn once, bags anew for each part."""
    generator = torch.Generator().manual_seed(seed)
    rare = functional.normalize(torch.randn(DIM, generator=generator), dim=0) * 6
    centres = torch.cat([torch.randn(TISSUES, DIM, generator=generator), rare[None]])  # (TISSUES + 1, DIM)
    if question.average:
        centres[2] = centres[:2].mean(0)
    return {
        name: _part(question, count, centres, generator) for name, count in ({"train": question.train} | SIZES).items()
    }


def _part(question: Question, count: int, centres: Tensor, generator: torch.Generator) -> Part:
    bags, counts = [], []
    labels = torch.arange(count) % 2
    for label in labels.tolist():
        n = LENGTHS[int(torch.randint(len(LENGTHS), (), generator=generator))]
        shares = question.shares(0.5 + torch.rand(TISSUES, generator=generator), label)
        tissue = torch.multinomial(shares, n, True, generator=generator)  # (n,)
        if label and question.needles:
            hit = torch.randperm(n, generator=generator)[: max(1, round(n * question.needles))]
            tissue[hit] = TISSUES
        bags.append(centres[tissue] + torch.randn(n, DIM, generator=generator))
        counts.append(torch.bincount(tissue, minlength=TISSUES + 1))
    return Part(bags, labels, torch.stack(counts))
