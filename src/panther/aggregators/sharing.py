"""Results shared by several methods on one bag: normalised rows, distances, means, the first step of EM, fitted mixtures."""

import math
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Sequence
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

import torch
from torch import Tensor

from panther.aggregators.blocks import NO_PLACES
from panther.aggregators.counts import ProtoCounts
from panther.aggregators.h2t import H2T
from panther.aggregators.ot import OT
from panther.aggregators.panther import PantherAggregator
from panther.aggregators.pooling import Mean
from panther.errors import InputError, not_finite, too_large
from panther.machine import is_spare
from panther.mixture import BatchedFitter, EMSettings, MixtureFit, PendingFit, Start, start_of, take_first_step
from panther.statistics import block_rows, compute_dtype, distances_to_prototypes, first_bad_row
from panther.statistics import upload as gpu
from panther.types import Aggregator, Bag, Basis, Mixture, Places, Rows, SlideEmbedding

# Bags up to this size are held in memory by several embedders, or on a GPU; larger ones are read in blocks by each method.
HELD_BYTES = {"cpu": 512 << 20, "cuda": gpu.HELD_BYTES}

_moving = threading.Lock()
T = TypeVar("T")
Fit = tuple[int, EMSettings]  # identity of the prototypes, settings


class SharedMethods:
    """The methods of a grid on one device, and their results that do not depend on a bag."""

    def __init__(self, methods: Sequence[tuple[Basis, Aggregator]], device: str) -> None:
        self.device = torch.device(device)
        self.all = [(basis, placed(module, self.device)) for basis, module in methods]
        mixtures = [(id(basis), module) for basis, module in self.all if isinstance(module, PantherAggregator)]
        # fits of which a method reads single patches, whichever method comes first
        self.assigned = {(basis, module.settings) for basis, module in mixtures if len(module.blocks)}
        self.scored = {(basis, module.settings) for basis, module in mixtures if module.needs_scores}
        self.distance_uses = Counter(id(basis) for basis, module in self.all if isinstance(module, (OT, ProtoCounts)))
        self._starts: dict[Hashable, Start] = {}

    @cached_property
    def together(self) -> tuple[Basis, BatchedFitter] | None:
        """Fitter of several bags at once: on a GPU, for a single method without blocks."""
        (basis, module), *others = self.all
        if others or not isinstance(module, PantherAggregator) or module.blocks or self.device.type != "cuda":
            return None
        return basis, BatchedFitter(module.centroids, module.get_buffer("variance"), module.settings)

    def start(self, key: Fit, module: PantherAggregator, dtype: torch.dtype) -> Start:
        """Start of EM on these prototypes, for arithmetic in ``dtype``."""
        start = _first_step_key(key), key in self.scored, dtype
        if start not in self._starts:
            inputs = module.centroids, module.get_buffer("variance"), dtype, module.settings.temperature
            self._starts[start] = start_of(*inputs, whole_score=key in self.scored)
        return self._starts[start]


class SharedBag:
    """One bag and its shared results, which equal those of each method alone."""

    def __init__(self, bag: Bag, methods: SharedMethods) -> None:
        self._bag, self._methods, self._device = bag, methods, methods.device
        self._made: dict[Hashable, Any] = {}
        self._distance_uses = methods.distance_uses.copy()
        self._pending: PendingFit | None = None

    def launch(self) -> PendingFit | None:
        """Start the fit on a GPU where only a mixture is needed, so that the next bag can be read meanwhile."""
        if self._methods.together is not None:
            basis, together = self._methods.together
            self._pending = together.add(self.prepared(basis).features)
        return self._pending

    @torch.no_grad()
    def embed(self, basis: Basis, module: Aggregator) -> SlideEmbedding:
        """Embed the bag by one of the methods; NaN is refused."""
        bag = self.prepared(basis)
        x, places = bag.features, places_of(bag, module)
        if isinstance(module, PantherAggregator):
            embedding = module.read(self.fit((id(basis), module.settings), module, x), x, places=places.get("places"))
        elif isinstance(module, OT):
            embedding = module.read(x, self._distances(basis, module, x))
        elif isinstance(module, ProtoCounts):
            embedding = module.read(self._distances(basis, module, x))
        elif isinstance(module, H2T) and not module.projection.is_identity and self._can_hold(x):
            embedding = module.read(self._once(("rows", id(x)), lambda: in_memory(module.projection.view(x))))
        elif isinstance(module, Mean):
            embedding = self._once(("mean", id(x)), lambda: module(x))
        else:
            embedding = module(x, **places)
        return check_embedding(bag, _fetched(embedding) if embedding.vector.is_cuda else embedding)

    def prepared(self, basis: Basis) -> Bag:
        """The bag, aligned and projected for these prototypes."""
        return self._once(("bag", id(basis)), lambda: basis.prepared(self._bag))

    def fit(self, key: Fit, module: PantherAggregator, x: Rows) -> MixtureFit:
        """Fitted mixture, shared by its readouts."""
        if ("fit", key) not in self._made:
            assigned = key in self._methods.assigned  # needed by methods that read single patches
            scored = key in self._methods.scored
            first = None
            if self._device.type == "cpu":  # a GPU takes all steps at once
                begin = _first_step_key(key), scored  # fits with the same start share the first step of EM
                if ("first step", begin) not in self._made:
                    dtype = compute_dtype(torch.promote_types(x.dtype, module.centroids.dtype))
                    start = self._methods.start(key, module, dtype)
                    kept = any(
                        other[1].steps == 1 and _first_step_key(other) == begin[0] for other in self._methods.assigned
                    )
                    step = take_first_step(x, start, keep_assignment=kept, keep_scores=scored)
                    self._made["first step", begin] = step
                first = self._made["first step", begin]
            if self._pending is not None:
                self._made["fit", key] = self._pending.wait()
            else:
                keep = {"with_assignment": assigned, "with_scores": scored, "to_host": not assigned}
                self._made["fit", key] = module.fit(x, None, **keep, first_step=first)
        fitted: MixtureFit = self._made["fit", key]
        if module.blocks or not fitted.mass.is_cuda:
            return fitted
        return self._once(("fit on the host", key), lambda: _on_host(fitted))

    def _distances(self, basis: Basis, module: OT | ProtoCounts, x: Rows) -> Tensor:
        """Squared distances (N, C) to the prototypes; released after their last use."""
        key = ("distances", id(basis))
        distances = self._once(key, lambda: distances_to_prototypes(x, module.get_buffer("centroids")))
        self._distance_uses[id(basis)] -= 1
        if self._distance_uses[id(basis)] <= 0:
            del self._made[key]
        return distances

    def _can_hold(self, x: Rows) -> bool:
        """Whether another copy of rows in memory fits."""
        wide = 8 if x.dtype == torch.float64 else 4
        return isinstance(x, Tensor) and self._device.type == "cpu" and can_hold(x.numel() * wide, "cpu")

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def _first_step_key(fit: Fit) -> tuple[Any, ...]:
    """Key of the settings that the first step depends on."""
    basis, settings = fit
    return basis, settings.variance, settings.temperature


def _on_host(fit: MixtureFit) -> MixtureFit:
    """Copy a fit from the GPU in one transfer: readouts are computed on the host."""
    *mixture, mass, likelihood = gpu.fetch([*fit.mixture, fit.mass, fit.log_likelihood])
    return fit._replace(mixture=Mixture(*mixture), mass=mass, log_likelihood=likelihood)


def _fetched(embedding: SlideEmbedding) -> SlideEmbedding:
    """Copy an embedding from the GPU in one transfer, without its assignment."""
    named = {name: value for name, value in embedding.aux.items() if isinstance(value, Tensor)}
    vector, *rest = gpu.fetch([embedding.vector, *named.values()])
    return SlideEmbedding(vector, aux={**embedding.aux, **dict(zip(named, rest, strict=True))})


def places_of(bag: Bag, module: Any) -> dict[str, Places]:
    """Positions of the patches as an argument of a module that reads them; an empty bag is refused."""
    if len(bag) == 0:
        raise InputError(f"{bag.source}: zero patches; there is nothing to embed.")
    if not getattr(module, "needs_places", False):
        return {}
    places = bag.layout()
    if places is None:
        raise InputError(f"{bag.source}: {NO_PLACES}")
    return {"places": places}


def check_embedding(bag: Bag, embedding: SlideEmbedding) -> SlideEmbedding:
    """Refuse NaN and infinity, naming the row. A finite sum is sufficient; an infinite one may be an overflow."""
    vector = embedding.vector
    if not math.isfinite(float(vector.sum())) and not bool(torch.isfinite(vector).all()):
        row = first_bad_row(bag.features)
        raise too_large(bag.source) if row is None else not_finite(bag.source, row)
    return embedding


def placed(module: Aggregator, device: torch.device) -> Aggregator:
    """Module on a device, moved by one thread: a second move would free memory that other threads compute with."""
    with _moving:
        tensor = next(chain(module.parameters(), module.buffers()), None)
        there = tensor is None or (tensor.device.type == device.type and device.index in (None, tensor.device.index))
        return module if there else module.to(device)


def can_hold(size: int, place: str) -> bool:
    """Whether a bag of ``size`` bytes is held in memory on a kind of device."""
    return size <= HELD_BYTES.get(place, 0) and (place != "cpu" or is_spare(size))


def in_memory(rows: Rows, device: str = "cpu") -> Tensor:
    """All rows (N, d) as stored, read into memory."""
    if torch.device(device).type == "cuda":
        return gpu.upload(rows, device)
    held = torch.empty(tuple(rows.shape), dtype=rows.dtype)
    step = block_rows(int(rows.shape[1]), rows.dtype.itemsize, "cpu")
    for start in range(0, len(held), step):
        held[start : start + step] = rows[start : start + step]
    return held
