"""What several methods do to one bag in the same way is done once: normalised rows, distances, means, the first step of EM, fitted mixtures."""

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

# A bag up to this size is held while it is worked on, by several embedders or on a GPU; a larger one each of them reads by blocks.
HELD_BYTES = {"cpu": 512 << 20, "cuda": gpu.HELD_BYTES}

_moving = threading.Lock()
T = TypeVar("T")
Fit = tuple[int, EMSettings]  # which prototypes, and how


class SharedMethods:
    """The methods of a grid on one device, and what does not depend on a bag: made once for all of them."""

    def __init__(self, methods: Sequence[tuple[Basis, Aggregator]], device: str) -> None:
        self.device = torch.device(device)
        self.all = [(basis, placed(module, self.device)) for basis, module in methods]
        mixtures = [(id(basis), module) for basis, module in self.all if isinstance(module, PantherAggregator)]
        # what one of them reads of the single patches must be kept, whoever comes first
        self.assigned = {(basis, module.settings) for basis, module in mixtures if len(module.blocks)}
        self.scored = {(basis, module.settings) for basis, module in mixtures if module.needs_scores}
        self.ask_distances = Counter(id(basis) for basis, module in self.all if isinstance(module, (OT, ProtoCounts)))
        self._starts: dict[Hashable, Start] = {}

    @cached_property
    def together(self) -> tuple[Basis, BatchedFitter] | None:
        """Who fits the mixtures of the only method for several bags at once, where there is a GPU for it and no block reads patches."""
        (basis, module), *others = self.all
        if others or not isinstance(module, PantherAggregator) or module.blocks or self.device.type != "cuda":
            return None
        return basis, BatchedFitter(module.centroids, module.get_buffer("variance"), module.settings)

    def start(self, key: Fit, module: PantherAggregator, dtype: torch.dtype) -> Start:
        """What EM starts from on these prototypes, for features that are computed with in a type."""
        how = _first_step_key(key), key in self.scored, dtype
        if how not in self._starts:
            inputs = module.centroids, module.get_buffer("variance"), dtype, module.settings.temperature
            self._starts[how] = start_of(*inputs, whole_score=key in self.scored)
        return self._starts[how]


class SharedBag:
    """One bag, and what was made of it so far; every number is what the method would have found alone."""

    def __init__(self, bag: Bag, methods: SharedMethods) -> None:
        self._bag, self._methods, self._device = bag, methods, methods.device
        self._made: dict[Hashable, Any] = {}
        self._ask_distances = methods.ask_distances.copy()
        self._pending: PendingFit | None = None

    def launch(self) -> PendingFit | None:
        """Hand the bag to a GPU where a mixture is all that is asked for, so that the next one can be read meanwhile."""
        if self._methods.together is not None:
            basis, together = self._methods.together
            self._pending = together.add(self._prepared(basis).features)
        return self._pending

    @torch.no_grad()
    def embed(self, basis: Basis, module: Aggregator) -> SlideEmbedding:
        """Embed it by one of the methods, checked."""
        bag = self._prepared(basis)
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

    def _prepared(self, basis: Basis) -> Bag:
        return self._once(("bag", id(basis)), lambda: basis.prepared(self._bag))

    def fit(self, key: Fit, module: PantherAggregator, x: Rows) -> MixtureFit:
        """Fitted mixture, shared by its readouts."""
        if ("fit", key) not in self._made:
            assigned = key in self._methods.assigned  # by those who read single patches, where these are
            scored = key in self._methods.scored
            first = None
            if self._device.type == "cpu":  # a GPU does it all at once
                begin = _first_step_key(key), scored  # fits that begin alike share the first step of EM
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
        """Squared distances (N, C) to the prototypes; held until the last method has asked for them."""
        key = ("distances", id(basis))
        distances = self._once(key, lambda: distances_to_prototypes(x, module.get_buffer("centroids")))
        self._ask_distances[id(basis)] -= 1
        if self._ask_distances[id(basis)] <= 0:
            del self._made[key]
        return distances

    def _can_hold(self, x: Rows) -> bool:
        """Whether there is room for another copy of rows that are held."""
        wide = 8 if x.dtype == torch.float64 else 4
        return isinstance(x, Tensor) and self._device.type == "cpu" and can_hold(x.numel() * wide, "cpu")

    def _once(self, key: Hashable, make: Callable[[], T]) -> T:
        if key not in self._made:
            self._made[key] = make()
        return self._made[key]


def _first_step_key(fit: Fit) -> tuple[Any, ...]:
    """What its first step depends on."""
    basis, settings = fit
    return basis, settings.variance, settings.temperature


def _on_host(fit: MixtureFit) -> MixtureFit:
    """The same, out of a GPU in one copy: readouts are computed there, however the mixture was fitted and whoever shares it."""
    *mixture, mass, likelihood = gpu.fetch([*fit.mixture, fit.mass, fit.log_likelihood])
    return fit._replace(mixture=Mixture(*mixture), mass=mass, log_likelihood=likelihood)


def _fetched(embedding: SlideEmbedding) -> SlideEmbedding:
    """What a row keeps of an embedding, out of a GPU in one copy."""
    named = {name: value for name, value in embedding.aux.items() if isinstance(value, Tensor)}
    vector, *rest = gpu.fetch([embedding.vector, *named.values()])
    return SlideEmbedding(vector, aux={**embedding.aux, **dict(zip(named, rest, strict=True))})


def places_of(bag: Bag, module: Any) -> dict[str, Places]:
    """Where the patches of a bag lie, as an argument of a module that reads it; an empty bag is refused."""
    if len(bag) == 0:
        raise InputError(f"{bag.source}: zero patches; there is nothing to embed.")
    if not getattr(module, "needs_places", False):
        return {}
    places = bag.layout()
    if places is None:
        raise InputError(f"{bag.source}: {NO_PLACES}")
    return {"places": places}


def check_embedding(bag: Bag, embedding: SlideEmbedding) -> SlideEmbedding:
    """The same; NaN is refused, naming the row. A finite sum says so at once, one that is not may have been too large."""
    vector = embedding.vector
    if not math.isfinite(float(vector.sum())) and not bool(torch.isfinite(vector).all()):
        row = first_bad_row(bag.features)
        raise too_large(bag.source) if row is None else not_finite(bag.source, row)
    return embedding


def placed(module: Aggregator, device: torch.device) -> Aggregator:
    """The module on a device, moved once: by one thread, because moving takes the memory from under who computes with it."""
    with _moving:
        tensor = next(chain(module.parameters(), module.buffers()), None)
        there = tensor is None or (tensor.device.type == device.type and device.index in (None, tensor.device.index))
        return module if there else module.to(device)


def can_hold(size: int, place: str) -> bool:
    """Whether so many bytes of a bag are held on a kind of device."""
    return size <= HELD_BYTES.get(place, 0) and (place != "cpu" or is_spare(size))


def in_memory(rows: Rows, device: str = "cpu") -> Tensor:
    """All rows (N, d) as stored, out of their file."""
    if torch.device(device).type == "cuda":
        return gpu.upload(rows, device)
    held = torch.empty(tuple(rows.shape), dtype=rows.dtype)
    step = block_rows(int(rows.shape[1]), rows.dtype.itemsize, "cpu")
    for start in range(0, len(held), step):
        held[start : start + step] = rows[start : start + step]
    return held
