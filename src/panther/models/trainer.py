"""Training loop in plain torch: same seed, same bytes on a CPU.

The randomness of an epoch (order, dropout) is seeded by (seed, epoch), and the learning rate is a function of the step.
"""

import logging
import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from copy import copy
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from panther.engine import Track, untracked
from panther.errors import InputError
from panther.models.scaling import AnyScaler, scaler_parts
from panther.models.settings import TrainSettings
from panther.models.tasks import Task

logger = logging.getLogger(__name__)

HELD_BYTES = 256 << 20  # largest embeddings that are kept in memory, scaled
BLOCK = 256  # rows read at a time

Batch = tuple[dict[str, Any], dict[str, Tensor]]  # (inputs of the model, encoded target)


class BatchSource(Protocol):
    """Batches of embeddings in memory, or of bags read one by one.

    The model is called as ``model(**inputs)``; it returns logits (B, n_outputs), or an object with ``.logits``. A model with
    an additional loss (DSMIL's instance loss) has a method ``loss(outputs, batch, task) -> Tensor``, which replaces
    ``task.loss(logits, batch)`` in training; validation always uses the task's.
    """

    def __len__(self) -> int:
        """Batches per epoch."""

    def epoch(self, epoch: int, seed: int) -> Iterator[Batch]:
        """Batches of an epoch; a function of both numbers alone."""


class ArraySource:
    """Embeddings as an array or memory map, with their encoded target.

    Rows are scaled once where they fit into memory and the scaling of a row does not depend on its batch; else batch by batch.

    Parameters
    ----------
    x : Tensor or ndarray
        (n, ...), every row of the cohort.
    target : mapping
        Encoded target of the chosen rows, each (n_rows, ...).
    rows : ndarray, optional
        Rows of x, e.g. the training part; all by default.
    """

    def __init__(
        self,
        x: Tensor | np.ndarray,
        target: Mapping[str, Tensor],
        batch_size: int,
        rows: np.ndarray | None = None,
        scaler: AnyScaler | None = None,
        shuffle: bool = True,
    ) -> None:
        self.x, self.target, self.batch_size, self.scaler, self.shuffle = x, target, batch_size, scaler, shuffle
        self.rows = rows = np.arange(len(x)) if rows is None else np.asarray(rows)
        # a product of matrices (a reduction) may round a row differently in another batch
        is_rowwise = scaler is None or all(part.reduction is None for part in scaler_parts(scaler))
        held: list[Tensor] = []
        for start in range(0, len(rows), BLOCK):
            block = self._read(rows[start : start + BLOCK])
            if is_rowwise and block[0].nbytes * len(rows) <= HELD_BYTES:
                held.append(scaler(block) if scaler else block)
        self._held = torch.cat(held) if held else None

    def in_order(self) -> "ArraySource":
        """The same rows, not shuffled."""
        ordered = copy(self)
        ordered.shuffle = False
        return ordered

    def __len__(self) -> int:
        return math.ceil(len(self.rows) / self.batch_size)

    def epoch(self, epoch: int, seed: int) -> Iterator[Batch]:
        """Batches, in a new order every epoch where rows are shuffled."""
        order = torch.arange(len(self.rows))
        if self.shuffle:
            order = torch.randperm(len(order), generator=torch.Generator().manual_seed(mixed_seed(seed, epoch)))
        for chosen in order.split(self.batch_size):
            if self._held is not None:
                x = self._held[chosen]
            else:
                x = self._read(self.rows[chosen.numpy()])
                x = self.scaler(x) if self.scaler else x
            yield {"x": x}, {k: v[chosen] for k, v in self.target.items()}

    def _read(self, rows: np.ndarray) -> Tensor:
        if isinstance(self.x, Tensor):
            return self.x[torch.as_tensor(rows)].float()
        return torch.as_tensor(np.asarray(self.x[rows], dtype=np.float32))


def mixed_seed(seed: int, epoch: int) -> int:
    """Seed of one epoch, independent of those of others."""
    return int(np.random.SeedSequence([seed, epoch]).generate_state(1, np.uint64)[0] >> 1)


class Fitted(NamedTuple):
    """A trained model (in eval mode) and its learning curve, one row per epoch."""

    model: nn.Module
    history: list[dict[str, float]]  # epoch, learning_rate, train_loss, val_loss, val_<metric> ...
    epoch: int  # of the model's parameters, from 0


def fit(
    model: nn.Module,
    batches: BatchSource,
    task: Task,
    settings: TrainSettings,
    *,
    val: BatchSource | None = None,
    track: Track = untracked,
) -> Fitted:
    """Train ``model`` by AdamW (Loshchilov and Hutter 2019).

    It ends with the parameters of the last epoch or of the best one on ``val`` (`settings.keep`).

    Parameters
    ----------
    batches, val : BatchSource
        Training part, and validation part; without ``val`` there is no early stopping, and the last epoch is kept.
    track : Track
        Progress bar over the epochs.
    """
    settings = settings.for_batches(len(batches))
    device = torch.device(settings.device)
    model.to(device)
    groups: dict[float, list[nn.Parameter]] = {}
    for name, p in model.named_parameters():  # without `decay_biases`, biases and gains do not decay
        free = not settings.decay_biases and (p.ndim < 2 or name.endswith("bias"))
        if p.requires_grad:
            groups.setdefault(0.0 if free else settings.weight_decay, []).append(p)
    optimiser = torch.optim.AdamW([{"params": p, "weight_decay": decay} for decay, p in groups.items()], fused=True)
    history: list[dict[str, float]] = []
    best, best_epoch, best_state = math.inf, -1, model.state_dict()
    for epoch in track(range(settings.epochs), "training", settings.epochs):
        row = {"epoch": float(epoch), **_train_epoch(model, batches, task, settings, optimiser, epoch)}
        if val is not None:
            logits, batch = predict_logits(model, val, settings)  # all at once: the Cox loss depends on the batch
            scores = {"loss": float(task.loss(logits, batch)), **task.metrics(task.predict(logits), task.decode(batch))}
            row |= {f"val_{name}": value for name, value in scores.items()}
            if row["val_loss"] < best:  # never of NaN
                best, best_epoch = row["val_loss"], epoch
                best_state = {k: v.detach().cpu().clone() for k, v in model.state_dict().items()}
        history.append(row)
        values = ", ".join(
            f"{k.replace('_', ' ')} {v:.4g}" for k, v in row.items() if k not in ("epoch", "learning_rate")
        )
        logger.info("epoch %d/%d: %s", epoch + 1, settings.epochs, values)
        waited = epoch - best_epoch if best_epoch >= 0 else 0
        if settings.patience is not None and waited >= settings.patience and len(history) >= settings.min_epochs:
            break
    if settings.keep == "best" and best_epoch >= 0:
        model.load_state_dict(best_state)
        return Fitted(model.eval(), history, best_epoch)
    return Fitted(model.eval(), history, len(history) - 1)


def _train_epoch(
    model: nn.Module,
    batches: BatchSource,
    task: Task,
    settings: TrainSettings,
    optimiser: torch.optim.AdamW,
    epoch: int,
) -> dict[str, float]:
    """One pass; gradients of `accumulate` batches are averaged for each step, also in the last, shorter group."""
    device, total, samples, n_batches = torch.device(settings.device), 0.0, 0, len(batches)
    rate = settings.learning_rate
    model.train()
    with _seeded(mixed_seed(settings.seed, epoch), device):
        for number, (inputs, batch) in enumerate(batches.epoch(epoch, settings.seed)):
            inputs, batch = to_device(inputs, device), to_device(batch, device)
            if settings.input_dropout:
                inputs["x"] = functional.dropout(inputs["x"], settings.input_dropout)
            size = len(next(iter(batch.values())))
            if task.compares and n_batches > 1 and settings.batch_size == 1:
                raise InputError(f"The loss {task.name!r} compares patients: found batch_size 1; or use nll")
            with _precision(settings):
                outputs = model(**inputs)
            instance_loss = getattr(model, "loss", None)
            loss = instance_loss(outputs, batch, task) if instance_loss else task.loss(logits_of(outputs), batch)
            if not math.isfinite(value := float(loss.detach())):
                raise InputError(f"The loss became {value} in epoch {epoch + 1}; lower learning_rate")
            start = number - number % settings.accumulate
            together = min(settings.accumulate, n_batches - start)
            (loss if together == 1 else loss / together).backward()
            total, samples = total + value * size, samples + size
            if (number + 1) % settings.accumulate == 0 or number + 1 == n_batches:
                rate = settings.rate(epoch + (start + number + 1) / 2 / n_batches)  # the middle of this step's batches
                for group in optimiser.param_groups:
                    group["lr"] = rate
                optimiser.step()
                optimiser.zero_grad()
    return {"learning_rate": rate, "train_loss": total / max(samples, 1)}


@contextmanager
def _seeded(seed: int, device: torch.device) -> Iterator[None]:
    """Random numbers of a seed inside; the generators outside are left as they were."""
    if device.type != "cpu":
        with torch.random.fork_rng(devices=[device]):
            torch.manual_seed(seed)
            yield
        return
    # torch.manual_seed also queues the seed for GPUs that are never used, with a stack trace each time: 2 ms
    before = torch.get_rng_state()
    torch.default_generator.manual_seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before)


def predict_logits(model: nn.Module, batches: BatchSource, settings: TrainSettings) -> tuple[Tensor, dict[str, Tensor]]:
    """Logits (n, n_outputs) of all samples in order, and their encoded target; on the CPU, in float32."""
    device = torch.device(settings.device)
    logits, targets = [], []
    model.to(device).eval()
    with torch.no_grad():
        for inputs, batch in batches.epoch(0, settings.seed):
            with _precision(settings):
                outputs = model(**to_device(inputs, device))
            logits.append(logits_of(outputs).cpu())
            targets.append(batch)
    return torch.cat(logits), {name: torch.cat([t[name].cpu() for t in targets]) for name in targets[0]}


def logits_of(outputs: Any) -> Tensor:
    """Logits of a model's outputs, in float32."""
    return (outputs if isinstance(outputs, Tensor) else outputs.logits).float()


def to_device(values: Mapping[str, Any], device: torch.device) -> dict[str, Any]:
    """Values with their tensors on a device."""
    return {k: v.to(device, non_blocking=True) if isinstance(v, Tensor) else v for k, v in values.items()}


def _precision(settings: TrainSettings) -> AbstractContextManager[Any]:
    device = torch.device(settings.device).type
    return torch.autocast(device, torch.bfloat16) if settings.mixed_precision and device == "cuda" else nullcontext()
