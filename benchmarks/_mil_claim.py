"""The paper's claim on generated bags: attention finds needles, prototypes with cardinality read mixtures. Used by mil.py."""

import statistics
from collections.abc import Sequence

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import balanced_accuracy_score
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn import functional

import _harness as harness
from panther.aggregators import build as build_aggregator
from panther.mil import BagSource, LoadSettings, MILModel, build_model
from panther.prototypes import KMeansSettings, fit_prototypes
from panther.types import Bag, Prototypes

DIM, TISSUES, TRAIN, TEST, PATCHES = 32, 5, 160, 200, 300
EPOCHS, RATE = 60, 1e-3  # after 20 epochs DSMIL has not begun to learn the needle (0.51), after 60 it has (1.00)
OPTIONS = {
    "abmil": {"hidden": 64, "attention": 48},
    "transmil": {"hidden": 64, "heads": 4, "landmarks": 32},
    "transmil, exact": {"hidden": 64, "heads": 4, "exact": True},
    "dsmil": {"hidden": 64, "attention": 32},
    "attnmisl": {"hidden": 64, "attention": 48},
    "ilra": {"hidden": 64, "heads": 4, "latents": 8},
}
UNSUPERVISED = {
    "panther (paper) + linear": ("panther", {}),
    "panther (calibrated) + linear": ("panther", {"preset": "calibrated"}),
    "deepsets + linear": ("deepsets", {}),
}
Cohort = tuple[list[Tensor], Tensor]


def tissue_bag(proportions: Tensor, centres: Tensor, generator: torch.Generator) -> Tensor:
    # four lengths, so that TransMIL, which cuts bags to their true length, can take several at once
    count = PATCHES // 3 * int(torch.randint(1, 5, (), generator=generator))
    tissue = torch.multinomial(proportions, count, True, generator=generator)
    return centres[tissue] + torch.randn(count, DIM, generator=generator)


def needle(count: int, seed: int, world: int) -> Cohort:
    """Every second bag has 1 % of its patches from a tissue that no other bag has; the rest is any mixture."""
    generator, made = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(world)
    centres = torch.randn(TISSUES, DIM, generator=made)
    rare = functional.normalize(torch.randn(DIM, generator=made), dim=0) * 6
    bags = []
    for number in range(count):
        bag = tissue_bag(torch.rand(TISSUES, generator=generator), centres, generator)
        if number % 2:
            hit = torch.randperm(len(bag), generator=generator)[: max(1, len(bag) // 100)]
            bag[hit] = rare + torch.randn(len(hit), DIM, generator=generator)
        bags.append(bag)
    return bags, torch.arange(count) % 2


def panoramic(count: int, seed: int, world: int) -> Cohort:
    """All bags have all tissues; the class says whether tissue 0 or tissue 1 has more patches, a question of proportions alone."""
    generator, made = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(world)
    centres = torch.randn(TISSUES, DIM, generator=made)
    bags = []
    for number in range(count):
        proportions = 0.5 + torch.rand(TISSUES, generator=generator)
        more, less = (0, 1) if number % 2 else (1, 0)
        both = float(proportions[0] + proportions[1])
        proportions[more], proportions[less] = 0.55 * both, 0.45 * both
        bags.append(tissue_bag(proportions, centres, generator))
    return bags, torch.arange(count) % 2


def two_mixtures(count: int, seed: int, world: int) -> Cohort:
    """Both classes have the same mean: class 1 mixes tissues 0 and 1 half and half, class 0 has their average as a tissue of its own."""
    generator, made = torch.Generator().manual_seed(seed), torch.Generator().manual_seed(world)
    centres = torch.randn(TISSUES, DIM, generator=made)
    centres[2] = (centres[0] + centres[1]) / 2
    bags = []
    for number in range(count):
        proportions = 0.5 + torch.rand(TISSUES, generator=generator)
        share = float(proportions[:3].sum())
        shares = torch.tensor([0.4, 0.4, 0.2] if number % 2 else [0.27, 0.27, 0.46])
        proportions[:3] = share * shares
        bags.append(tissue_bag(proportions, centres, generator))
    return bags, torch.arange(count) % 2


TASKS = {"needle": needle, "panoramic": panoramic, "same mean": two_mixtures}


class CrossEntropy:
    @staticmethod
    def loss(logits: Tensor, batch: dict[str, Tensor]) -> Tensor:
        return functional.cross_entropy(logits, batch["label"])


def named(bags: Sequence[Tensor]) -> list[Bag]:
    return [Bag(f"bag-{number}", bag) for number, bag in enumerate(bags)]


def supervised(name: str, train: Cohort, test: Cohort, prototypes: Prototypes, seed: int, device: str) -> float:
    model: MILModel = build_model(name.split(",")[0], DIM, 2, prototypes, OPTIONS[name], seed=seed).to(device)
    batches = BagSource(named(train[0]), {"label": train[1]}, LoadSettings(batch_size=8))
    optimiser = torch.optim.AdamW(model.parameters(), lr=RATE, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, EPOCHS * len(batches))
    torch.manual_seed(seed)
    model.train()
    for epoch in range(EPOCHS):
        for inputs, batch in batches.epoch(epoch, seed):
            moved = {k: v.to(device) for k, v in inputs.items()}
            optimiser.zero_grad()
            model.loss(model(**moved), {k: v.to(device) for k, v in batch.items()}, CrossEntropy).backward()
            optimiser.step()
            schedule.step()
    model.eval()
    with torch.no_grad():
        predicted = [int(model(bag.to(device)).logits.argmax()) for bag in test[0]]
    return float(balanced_accuracy_score(test[1], predicted))


def unsupervised(method: str, options: dict, train: Cohort, test: Cohort, prototypes: Prototypes) -> float:
    module = build_aggregator(method, prototypes, options)
    with torch.no_grad():
        x = [torch.stack([module(bag).vector for bag in bags]).numpy() for bags, _ in (train, test)]
    scaler = StandardScaler().fit(x[0])
    probe = LogisticRegression(C=0.1, max_iter=2000).fit(scaler.transform(x[0]), train[1])
    return float(balanced_accuracy_score(test[1], probe.predict(scaler.transform(x[1]))))


def claim(seeds: int, names: Sequence[str], device: str) -> None:
    """Print balanced accuracy on unseen bags, mean and range over worlds (tissues, bags, start of the networks)."""
    print(f"{TRAIN} training and {TEST} test bags of about {PATCHES} patches x {DIM}, {EPOCHS} epochs, {seeds} seeds.")
    found: dict[tuple[str, str], list[float]] = {}
    names = [label for label in OPTIONS if label.split(",")[0] in names]
    for task, make in TASKS.items():
        for seed in range(seeds):
            train, test = make(TRAIN, 100 + seed, seed), make(TEST, 200 + seed, seed)
            prototypes = fit_prototypes(named(train[0]), KMeansSettings(n_prototypes=8, seed=seed)).prototypes
            for name in names:
                found.setdefault((name, task), []).append(supervised(name, train, test, prototypes, seed, device))
            for label, (method, options) in UNSUPERVISED.items():
                found.setdefault((label, task), []).append(unsupervised(method, options, train, test, prototypes))
    rows = [
        [
            name,
            *(f"{statistics.mean(v):.3f} ({min(v):.2f}-{max(v):.2f})" for v in (found[name, task] for task in TASKS)),
        ]
        for name in [*names, *UNSUPERVISED]
    ]
    harness.table("Balanced accuracy on unseen bags, mean (smallest-largest)", ["method", *TASKS], rows)
