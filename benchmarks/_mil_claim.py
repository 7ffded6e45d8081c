"""The paper's claim on generated bags: attention finds needles, prototypes with cardinality read mixtures. Used by mil.py.

Nothing is chosen by looking at test bags: each training keeps the epoch with the smallest validation loss, and of the learning
rates the one whose validation loss is smallest counts. Methods without a rate have their penalty chosen inside the training part.
"""

import functools
import json
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import _harness as harness
from _mil_worlds import DIM, LENGTHS, QUESTIONS, SIZES, Part, world
from panther.aggregators import build as build_aggregator
from panther.cohort.targets import Classes
from panther.mil import build_model
from panther.models.heads import build_head
from panther.models.probes import fit_suitable
from panther.models.scaling import build_scaler
from panther.models.settings import TrainSettings
from panther.models.tasks import Task, fit_task
from panther.models.trainer import ArraySource, fit, mixed_seed, predict_logits
from panther.prototypes import KMeansSettings, fit_bags
from panther.types import Bag, Prototypes

PROTOTYPES = 8
RATES = (3e-4, 1e-3, 3e-3)
NAMES = ("without", "with")


@dataclass(frozen=True)
class Method:
    """A row of the table."""

    kind: str  # of LEARN
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    rates: tuple[float, ...] = RATES
    scaling: str = "balanced"  # the product's default when the table of docs/benchmarks.md was made

    def answers(self, question: str) -> bool:
        return QUESTIONS[question].only in ("", self.name)


METHODS = {
    "abmil": Method("network", "abmil", {"hidden": 64, "attention": 48}),
    "transmil, 32 landmarks": Method("network", "transmil", {"hidden": 64, "heads": 4, "landmarks": 32}),
    "transmil, exact attention": Method("network", "transmil", {"hidden": 64, "heads": 4, "exact": True}),
    "dsmil": Method("network", "dsmil", {"hidden": 64, "attention": 32}),
    "attnmisl": Method("network", "attnmisl", {"hidden": 64, "attention": 48}),
    "ilra": Method("network", "ilra", {"hidden": 64, "heads": 4, "latents": 8}),
    "panther (paper) + probe": Method("probe", "panther", rates=(0.0,)),
    "panther (calibrated) + probe": Method("probe", "panther", {"preset": "calibrated"}, (0.0,)),
    "panther (paper) + structured MLP": Method("head", "panther"),
    "panther (calibrated) + structured MLP": Method("head", "panther", {"preset": "calibrated"}),
    "panther (paper), by block + probe": Method("probe", "panther", rates=(0.0,), scaling="block"),
    "panther (calibrated), by block + probe": Method("probe", "panther", {"preset": "calibrated"}, (0.0,), "block"),
    "panther (paper), by block + structured MLP": Method("head", "panther", scaling="block"),
    "panther (calibrated), by block + structured MLP": Method(
        "head", "panther", {"preset": "calibrated"}, scaling="block"
    ),
    "protocounts (fractions) + probe": Method("probe", "protocounts", {"scale": "fraction"}, (0.0,)),
    "deepsets + probe": Method("probe", "deepsets", rates=(0.0,)),
    "true tissues, counted + logistic": Method("truth", rates=(0.0,)),  # what is possible
}


@dataclass(frozen=True)
class Cell:
    """One training."""

    question: str
    method: str
    seed: int
    rate: float


@dataclass(frozen=True)
class Score:
    """What came out; tables take the rate with the smallest validation loss."""

    val_loss: float
    epoch: int
    test: float  # balanced accuracy
    seconds: float = 0.0


@dataclass(frozen=True, eq=False)
class BagsOnDevice:
    """Bags that stay on the device; a batch has one length, so that nothing is padded and nothing is copied."""

    groups: list[tuple[Tensor, Tensor]]  # bags (n, N, d) of one length, their numbers in the part (n,)
    labels: Tensor
    batch_size: int
    shuffle: bool

    @classmethod
    def of(cls, part: Part, batch_size: int, device: str, shuffle: bool) -> "BagsOnDevice":
        lengths = torch.tensor([len(bag) for bag in part.bags])
        numbers = [(lengths == n).nonzero().squeeze(-1) for n in lengths.unique()]
        groups = [(torch.stack([part.bags[i] for i in some.tolist()]).to(device), some.to(device)) for some in numbers]
        return cls(groups, part.labels.to(device), batch_size, shuffle)

    def __len__(self) -> int:
        return sum(-(-len(x) // self.batch_size) for x, _ in self.groups)

    def epoch(self, epoch: int, seed: int) -> Iterator[tuple[dict[str, Any], dict[str, Tensor]]]:
        generator = torch.Generator().manual_seed(mixed_seed(seed, epoch))
        draw = functools.partial(torch.randperm, generator=generator) if self.shuffle else torch.arange
        batches = [(x, ids, rows) for x, ids in self.groups for rows in draw(len(x)).split(self.batch_size)]
        for number in draw(len(batches)).tolist():
            x, ids, rows = batches[number]
            rows = rows.to(x.device)
            yield {"x": x[rows]}, {"label": self.labels[ids[rows]]}


@functools.lru_cache(maxsize=4)
def prepared(question: str, seed: int) -> tuple[dict[str, Part], Prototypes]:
    parts = world(QUESTIONS[question], seed)
    bags = [Bag(f"bag-{number}", bag) for number, bag in enumerate(parts["train"].bags)]
    return parts, fit_bags(bags, KMeansSettings(n_prototypes=PROTOTYPES, seed=seed)).prototypes


def classes(part: Part) -> Classes:
    return Classes(NAMES, part.labels.numpy())


def judged(task: Task[Any], logits: Tensor, target: Classes) -> float:
    return task.metrics(task.predict(logits), target)["balanced_accuracy"]


def learn_network(cell: Cell, method: Method, device: str) -> Score:
    parts, prototypes = prepared(cell.question, cell.seed)
    task = fit_task("cross-entropy", classes(parts["train"]))
    model = build_model(method.name, DIM, 2, prototypes, method.options, seed=cell.seed)
    epochs = QUESTIONS[cell.question].epochs
    settings = TrainSettings(epochs, 8, learning_rate=cell.rate, keep="best", seed=cell.seed, device=device)
    sources = {n: BagsOnDevice.of(p, 8 if n == "train" else 100, device, n == "train") for n, p in parts.items()}
    fitted = fit(model, sources["train"], task, settings, val=sources["val"])
    logits, batch = predict_logits(fitted.model, sources["test"], settings)
    return Score(fitted.history[fitted.epoch]["val_loss"], fitted.epoch, judged(task, logits, task.decode(batch)))


def embedded(cell: Cell, method: Method) -> tuple[dict[str, Part], dict[str, Tensor], tuple[int, ...]]:
    """Embeddings of every part scaled as the product scales them, and the shape (C, t) of one."""
    parts, prototypes = prepared(cell.question, cell.seed)
    module = build_aggregator(method.name, prototypes, method.options)
    with torch.no_grad():
        found = {name: [module(bag) for bag in part.bags] for name, part in parts.items()}
    x = {name: torch.stack([e.vector for e in some]) for name, some in found.items()}
    scaler = build_scaler(method.scaling)(x["train"], module.columns())
    tokens = found["train"][0].tokens
    shape = tuple(x["train"].shape[1:] if tokens is None else tokens.shape)
    return parts, {name: scaler(values) for name, values in x.items()}, shape


def learn_head(cell: Cell, method: Method, device: str) -> Score:
    parts, x, shape = embedded(cell, method)
    task = fit_task("cross-entropy", classes(parts["train"]))
    head = build_head("paper-classification", shape, 2, seed=cell.seed)
    settings = TrainSettings(QUESTIONS[cell.question].epochs, learning_rate=cell.rate, keep="best", seed=cell.seed)
    sources = {n: ArraySource(x[n], task.encode(classes(p)), 32, shuffle=n == "train") for n, p in parts.items()}
    fitted = fit(head, sources["train"], task, settings, val=sources["val"])
    logits = predict_logits(fitted.model, sources["test"], settings)[0]
    return Score(fitted.history[fitted.epoch]["val_loss"], fitted.epoch, judged(task, logits, classes(parts["test"])))


def learn_probe(cell: Cell, method: Method, device: str) -> Score:
    parts, x, _ = embedded(cell, method)
    probe = fit_suitable(x["train"].numpy(), classes(parts["train"]), seed=cell.seed)
    task = fit_task("cross-entropy", classes(parts["train"]))
    return Score(0.0, 0, judged(task, torch.from_numpy(probe.logits(x["test"].numpy())), classes(parts["test"])))


def learn_truth(cell: Cell, method: Method, device: str) -> Score:
    """Shares of the true tissues, each standardised, and logistic regression: no method can know more."""
    parts, _ = prepared(cell.question, cell.seed)
    x = {name: part.counts / part.counts.sum(1, keepdim=True) for name, part in parts.items()}
    deviation = x["train"].std(0)
    x = {
        name: ((values - x["train"].mean(0)) / deviation.where(deviation > 0, 1)).numpy() for name, values in x.items()
    }
    probe = fit_suitable(x["train"], classes(parts["train"]), strengths=(1e-2,))
    task = fit_task("cross-entropy", classes(parts["train"]))
    return Score(0.0, 0, judged(task, torch.from_numpy(probe.logits(x["test"])), classes(parts["test"])))


LEARN: dict[str, Callable[[Cell, Method, str], Score]] = {
    "network": learn_network,
    "head": learn_head,
    "probe": learn_probe,
    "truth": learn_truth,
}


def run_cell(cell: Cell, device: str) -> Score:
    torch.set_num_threads(1)
    start = time.perf_counter()
    method = METHODS[cell.method]
    score = LEARN[method.kind](cell, method, device)
    return Score(score.val_loss, score.epoch, score.test, time.perf_counter() - start)


def claim(seeds: int, networks: Sequence[str], device: str, processes: int, cells: Path | None) -> None:
    """Train every cell that the file of ``cells`` does not have yet, each line printed as it comes; then the table."""
    chosen = {label: m for label, m in METHODS.items() if m.kind != "network" or m.name in networks}
    asked = [(q, label, m) for q in QUESTIONS for label, m in chosen.items() if m.answers(q)]
    todo = [Cell(q, label, seed, rate) for seed in range(seeds) for q, label, m in asked for rate in m.rates]
    found: dict[Cell, Score] = {}
    if cells is not None and cells.exists():
        lines = [json.loads(line) for line in cells.read_text().splitlines()]
        found = {Cell(**line["cell"]): Score(**line["score"]) for line in lines}
    # the slowest first, so that no single one is waited for at the end
    slow = {"transmil": -1}
    missing = sorted(
        (c for c in todo if c not in found),
        key=lambda c: (-QUESTIONS[c.question].train, slow.get(METHODS[c.method].name, 0)),
    )
    with ProcessPoolExecutor(processes or os.cpu_count(), multiprocessing.get_context("spawn")) as pool:
        futures = {pool.submit(run_cell, cell, device): cell for cell in missing}
        for number, future in enumerate(as_completed(futures), 1):
            cell, score = futures[future], future.result()
            found[cell] = score
            print(
                f"{number}/{len(missing)} {cell.question}, {cell.method}, seed {cell.seed}, rate {cell.rate:g}: "
                f"{score.test:.3f} (epoch {score.epoch + 1}, val loss {score.val_loss:.3f}, {score.seconds:.0f} s)",
                flush=True,
            )
            if cells is not None:
                with cells.open("a") as handle:
                    handle.write(json.dumps({"cell": asdict(cell), "score": asdict(score)}) + "\n")
    report(seeds, chosen, found)


def report(seeds: int, chosen: Mapping[str, Method], found: Mapping[Cell, Score]) -> None:
    sizes = ", ".join(f"{count} {name}" for name, count in SIZES.items())
    print(
        f"\n160 train, {sizes} bags of {LENGTHS[0]} to {LENGTHS[-1]} patches x {DIM}, {seeds} worlds; at most 60 epochs, rates "
        f"{', '.join(f'{r:g}' for r in RATES)}, epoch and rate chosen on the validation bags."
    )
    rows = []
    for label, method in chosen.items():
        row = [label]
        for question in QUESTIONS:
            if not method.answers(question):
                row.append("")
                continue
            of = [[found[Cell(question, label, seed, rate)] for rate in method.rates] for seed in range(seeds)]
            tests = [min(scores, key=lambda score: score.val_loss).test for scores in of]
            row.append(f"{statistics.mean(tests):.3f} ({min(tests):.2f}-{max(tests):.2f})")
        rows.append(row)
    harness.table("Balanced accuracy on unseen bags, mean (smallest-largest)", ["method", *QUESTIONS], rows)
