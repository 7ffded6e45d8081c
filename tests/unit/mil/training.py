"""Generated bags with known truth, and the few lines that train a model on them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from panther.mil import BagSource, LoadSettings, MILModel, build_model
from panther.types import Bag, Prototypes

SMALL: dict[str, dict] = {  # widths that train in a second
    "abmil": {"hidden": 32, "attention": 16},
    "transmil": {"hidden": 32, "heads": 2, "landmarks": 16},
    "dsmil": {"hidden": 32, "attention": 16},
    "attnmisl": {"hidden": 32, "attention": 16},
    "ilra": {"hidden": 32, "heads": 2, "latents": 4},
}


@dataclass(frozen=True)
class Loss:
    """As much of a task as a model must know."""

    function: Callable[[Tensor, Mapping[str, Tensor]], Tensor]

    def loss(self, logits: Tensor, batch: Mapping[str, Tensor]) -> Tensor:
        return self.function(logits, batch)


CLASSES = Loss(lambda logits, batch: functional.cross_entropy(logits, batch["label"]))


def needle_bags(count: int, dim: int, seed: int, needles: tuple[int, int] = (1, 3)) -> tuple[list[Tensor], Tensor]:
    """Bags of 49 patches of noise; in every second one, one to three lie far out in one direction."""
    generator = torch.Generator().manual_seed(seed)
    direction = functional.normalize(torch.ones(dim), dim=0) * 6
    bags = []
    for number in range(count):
        bag = torch.randn(49, dim, generator=generator)
        if number % 2:
            hit = torch.randperm(len(bag), generator=generator)
            bag[hit[: int(torch.randint(needles[0], needles[1] + 1, (), generator=generator))]] += direction
        bags.append(bag)
    return bags, torch.arange(count) % 2


def source(bags: Sequence[Tensor], target: Mapping[str, Tensor], settings: LoadSettings | None = None) -> BagSource:
    samples = [Bag(f"bag {number}", bag) for number, bag in enumerate(bags)]
    return BagSource(samples, target, settings or LoadSettings(batch_size=8))


def train(model: MILModel, batches: BagSource, task: Loss, epochs: int, rate: float = 3e-3) -> MILModel:
    optimiser = torch.optim.AdamW(model.parameters(), lr=rate, weight_decay=1e-5)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, epochs * len(batches))
    torch.manual_seed(0)
    model.train()
    for epoch in range(epochs):
        for inputs, batch in batches.epoch(epoch, seed=0):
            optimiser.zero_grad()
            model.loss(model(**inputs), batch, task).backward()
            optimiser.step()
            schedule.step()
    return model.eval()


@torch.no_grad()
def logits(model: MILModel, bags: Sequence[Tensor]) -> Tensor:
    return torch.cat([model(bag).logits for bag in bags])


def small_model(name: str, dim: int, n_outputs: int, bags: Sequence[Tensor], **options: object) -> MILModel:
    """Model with prototypes taken from the bags, for the network that needs them."""
    return build_model(
        name, dim, n_outputs, Prototypes(torch.cat(list(bags))[::97][:4].clone()), {**SMALL[name], **options}
    )


def balanced_accuracy(predicted: Tensor, truth: Tensor) -> float:
    return float(torch.stack([(predicted[truth == c] == c).float().mean() for c in truth.unique()]).mean())
