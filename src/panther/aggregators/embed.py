"""Bags to embeddings: one bag, or a cohort by several methods in one pass over its bags.

Each bag is opened and read once, whatever the number of methods; bags are distributed over workers.
"""

import tempfile
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import torch

from panther.aggregators._base import build
from panther.aggregators.sharing import (
    HELD_BYTES,
    SharedBag,
    SharedMethods,
    can_hold,
    check_embedding,
    in_memory,
    places_of,
)
from panther.engine import LOCAL, Launched, Work, name_of, stream
from panther.errors import InputError, describe, make_plain
from panther.statistics.even_sample import standard_error
from panther.statistics.kernels import kernel_name
from panther.storage.bags import BagLike, BagsLike, as_bag, as_bags
from panther.storage.embeddings import EmbeddingTable
from panther.storage.prototypes import as_prototypes
from panther.store import HashedRows, hash_of
from panther.types import Aggregator, Bag, Basis, FeatureSpace, Openable, Prototypes, SlideEmbedding, space_of

Row = tuple[np.ndarray, dict[str, Any]]  # concatenated vectors of all embedders, and further columns
FAILED = "failed"  # column: reason why an embedder failed on the bag


def embed(
    bag: BagLike,
    prototypes: Prototypes | Path | str | None = None,
    method: str = "panther",
    *,
    with_assignment: bool = False,
    **options: Any,
) -> SlideEmbedding:
    """Embed one bag on fitted prototypes.

    Parameters
    ----------
    bag : array, tensor, DataFrame, Bag or path
        Patches (N, d) of one slide, or their file.
    prototypes : Prototypes or path, optional
        Fitted prototypes, or their file; methods without prototypes need none.
    method : str, default="panther"
        `panther`, `ot`, `h2t`, `protocounts` or `deepsets`; without prototypes `mean`, `mean-std`, `max` or `top-k`.
    with_assignment : bool, default=False
        Whether to keep which patch belongs to which prototype, `assignment` (N, C).
    **options
        Settings of the method, e.g. ``preset="calibrated"``.

    Returns
    -------
    SlideEmbedding
        The vector, its view per prototype (`tokens`), the assignment if requested, and diagnostics (`aux`).

    Examples
    --------
    >>> import torch, panther
    >>> one = panther.embed(torch.randn(50, 3), panther.Prototypes(torch.eye(3)), steps=2)
    >>> one.vector.shape, one.tokens.shape
    (torch.Size([21]), torch.Size([3, 7]))
    """
    opened = as_bag(bag)
    basis = space_of(opened) if prototypes is None else as_prototypes(prototypes)
    return embed_sample(opened, basis, build(method, basis, options), with_assignment=with_assignment)


def embed_sample(
    sample: Openable, prototypes: Basis, module: Callable[..., SlideEmbedding], *, with_assignment: bool = False
) -> SlideEmbedding:
    """Embed one bag; NaN raises an error that names the row."""
    bag = prototypes.prepared(sample.open())
    return check_embedding(bag, run_on(bag, module, with_assignment=with_assignment))


@torch.no_grad()
def run_on(bag: Bag, module: Callable[..., SlideEmbedding], *, with_assignment: bool = False) -> SlideEmbedding:
    """Call a module on a prepared bag, with the places of its patches where it reads them."""
    return module(bag.features, with_assignment=with_assignment, **places_of(bag, module))


def embed_bags(
    features: BagsLike,
    prototypes: Basis | Path | str | None,
    method: str,
    options: Mapping[str, Any],
    *,
    work: Work = LOCAL,
) -> EmbeddingTable:
    """Embed every bag by one method; `failures` of the table lists the others."""
    listing = as_bags(features)
    (table,) = embed_grid(listing.refs, [Embedder(basis_of(prototypes, listing.refs), method, options)], work)
    if isinstance(table, InputError):
        raise table
    return replace(table, failures={**listing.problems, **table.failures})


def basis_of(prototypes: Basis | Path | str | None, bags: Sequence[Openable]) -> Basis:
    """Prototypes, or the feature space of the first readable bag, which all others must have."""
    if prototypes is not None:
        return prototypes if isinstance(prototypes, FeatureSpace) else as_prototypes(prototypes)
    for ref in bags:
        with suppress(InputError):
            return space_of(ref.open())
    raise InputError("features: no bag can be read")


@dataclass(frozen=True)
class Embedder:
    """A method with its settings on given prototypes, or on the features alone."""

    prototypes: Basis
    method: str = "panther"
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        make_plain(self)
        _ = self.module  # invalid settings are refused here

    @cached_property
    def module(self) -> Aggregator:
        """The method as a module."""
        return build(self.method, self.prototypes, self.options)

    def __getstate__(self) -> dict[str, Any]:
        """Without the module: the receiver builds it from the prototypes, which many embedders share."""
        return {item.name: self.__dict__[item.name] for item in fields(self)}


def embed_grid(
    bags: Sequence[Openable], embedders: Sequence[Embedder], work: Work, folder: Path | None = None
) -> Generator[EmbeddingTable | InputError]:
    """Yield the table of each embedder, in order, after one pass over the bags; an error if it could embed none of them.

    Rows are in an unnamed temporary file in ``folder``, which the system removes with the process; the vectors of a table may be a
    memory map of it, so a cohort may be larger than memory. The file is written, not mapped, so that a full disk raises an error
    instead of killing the process.
    """
    names = [bag.sample for bag in bags]
    widths = [embedder.module.out_dim for embedder in embedders]
    about: dict[str, dict[str, Any]] = {}  # further columns of each bag
    lost: dict[str, str] = {}  # bags that no embedder could embed
    matrix = np.empty((0, 0), np.float32)
    folder = folder or Path(tempfile.gettempdir())
    with writing_to(folder):
        folder.mkdir(parents=True, exist_ok=True)
        file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115
    with file:
        for index, (vector, row) in stream(EmbedBag(embedders, work.device), bags, "embedding", work, lost):
            with writing_to(folder):
                file.seek(index * vector.nbytes)
                file.write(vector.data)
                file.flush()  # a full disk is reported here
            about[names[index]] = row
        with writing_to(folder):
            file.truncate(len(names) * sum(widths) * 4)  # the last rows may have failed
            if about:
                matrix = np.memmap(file, np.float32, "c", shape=(len(names), sum(widths)))
    for number, (embedder, end) in enumerate(zip(embedders, accumulate(widths), strict=True)):
        failed = {name: row["each"][number].get(FAILED) for name, row in about.items()}
        failures = {name: why for name in names if (why := lost.get(name) or failed.get(name))}
        rows = {name: about[name] for name in names if name in about and name not in failures}
        if not rows:
            yield InputError(f"None of the {len(names)} samples could be embedded. {next(iter(failures.values()), '')}")
            continue
        vectors = matrix[:, end - widths[number] : end]
        if len(rows) < len(names):
            vectors = np.asarray(vectors[[name in rows for name in names]])
        yield make_table(embedder, number, rows, vectors, failures)


@contextmanager
def writing_to(folder: Path) -> Iterator[None]:
    """Turn errors of the system into errors that name the folder."""
    try:
        yield
    except OSError as error:
        raise InputError(f"{folder}: embeddings cannot be written there ({error.strerror})") from error


def make_table(
    embedder: Embedder,
    number: int,
    rows: Mapping[str, Mapping[str, Any]],
    vectors: np.ndarray,
    failures: Mapping[str, str],
) -> EmbeddingTable:
    """Table of one embedder."""
    each = [{"n_patches": row["n_patches"], **row["each"][number]} for row in rows.values()]
    weights = np.array([row.pop("weights") for row in each]) if "weights" in each[0] else None
    errors = [row.pop("weights_se", None) for row in each]
    exact = np.zeros(0 if weights is None else weights.shape[1])  # of bags of all patches
    weights_se = np.array([exact if error is None else error for error in errors]) if any(errors) else None
    kernels = sorted({row["kernel"] for row in rows.values()})
    if len(kernels) > 1:
        warnings.warn(
            f"Embeddings were computed by different kernels ({', '.join(kernels)}): they agree within 1e-5, but not in every byte; "
            "set PANTHER_KERNEL=torch on all machines for the same bytes.",
            stacklevel=2,
        )
    settings = {"method": embedder.method, **embedder.options, "prototypes": embedder.prototypes.content_hash()}
    return EmbeddingTable(
        list(rows),
        vectors,
        {column: [row[column] for row in each] for column in each[0]},
        weights,
        embedder.module.columns(),
        embedder.prototypes,
        {**settings, "kernel": ", ".join(kernels)},
        failures,
        contents={name: row["content"] for name, row in rows.items()},
        weights_se=weights_se,
    )


@dataclass(frozen=True)
class EmbedBag:
    """Embeds one bag after the other by all embedders."""

    embedders: Sequence[Embedder]
    device: str

    @cached_property
    def methods(self) -> SharedMethods:
        """Modules on the device."""
        return SharedMethods([(embedder.prototypes, embedder.module) for embedder in self.embedders], self.device)

    def __getstate__(self) -> dict[str, Any]:
        """Without the modules, which the receiver builds."""
        return {item.name: self.__dict__[item.name] for item in fields(self)}

    def __call__(self, ref: Openable) -> Row | Launched[Row]:
        """Concatenated vectors of one bag, and further columns."""
        bag = ref.open()
        features = HashedRows(bag.features)  # hashed as they are read
        place, size = torch.device(self.device).type, len(bag) * bag.dim * bag.features.dtype.itemsize
        several = len(self.embedders) > 1 or place == "cuda"
        held = several and can_hold(size, place)
        bag = replace(bag, features=in_memory(features, self.device) if held else features)
        shared = SharedBag(bag, self.methods)
        # the next bags are read meanwhile, so more than one is held
        if held and 2 * size <= HELD_BYTES[place] and (fit := shared.launch()):
            return Launched(lambda: self.row(ref, bag, features, shared), fit.is_here)
        return self.row(ref, bag, features, shared)

    def row(self, ref: Openable, bag: Bag, features: HashedRows, shared: SharedBag) -> Row:
        """Vectors and columns of all embedders, or the reasons of their failures."""
        vectors, each, errors = [], [], []
        for basis, module in self.methods.all:
            try:
                embedding = shared.embed(basis, module)
                vectors.append(embedding.vector.cpu().numpy())
                each.append(summary_of(embedding) | errors_of(shared.prepared(basis), module, embedding))
            except Exception as error:  # the other embedders continue
                vectors.append(np.full(module.out_dim, np.nan, np.float32))
                each.append({FAILED: describe(error, name_of(ref))})
                errors.append(error)
        if len(errors) == len(self.embedders):
            raise errors[0]
        content = features.digest()
        if any(module.needs_places for _, module in self.methods.all):
            content = hash_of([content, bag.places_fingerprint()])
        about = {"content": content, "n_patches": len(bag), "kernel": kernel_name(self.device), "each": each}
        return np.concatenate(vectors, dtype=np.float32), about


@torch.no_grad()
def errors_of(bag: Bag, module: Aggregator, embedding: SlideEmbedding) -> dict[str, Any]:
    r"""Standard errors of the proportions of a prepared bag of which slides are samples: :math:`\sum_s (n_s / n)^2 SE_s^2`.

    Empty for other bags, and for methods whose proportions are no mean over patches.
    """
    slides = list(single_slides(bag))
    if "weights" not in embedding.aux or all(slide.population is None for slide in slides):
        return {}
    settings = getattr(module, "settings", None)
    if settings is not None and settings.weights == "uniform":
        return {}
    assignment = run_on(bag, module, with_assignment=True).assignment
    if assignment is None:
        return {}
    rows = (assignment / assignment.sum(-1, keepdim=True)).cpu().double().numpy()
    count, variance, start = len(rows), np.zeros(rows.shape[1]), 0
    for slide in slides:
        part = rows[start : start + len(slide)]
        total = len(slide) if slide.population is None else slide.population.total
        variance += np.square(standard_error(part, total) * len(part) / count) if len(part) else 0.0
        start += len(part)
    prior = 0.0 if settings is None else settings.tau * rows.shape[1]  # a fixed share of every proportion
    return {"weights_se": (np.sqrt(variance) * count / (count + prior)).tolist()}


def single_slides(bag: Bag) -> Iterator[Bag]:
    """Slides of a bag, in the order of the rows."""
    for slide in bag.slides or (bag,):
        yield from single_slides(slide) if slide.slides else (slide,)


def summary_of(embedding: SlideEmbedding) -> dict[str, Any]:
    """Diagnostics that become columns of the table."""
    about: dict[str, Any] = {}
    for name, value in embedding.aux.items():
        if name == "mass":
            about["absent_prototypes"] = int((value < 1).sum())
        elif name == "weights":
            about["weights"] = value.tolist()
        else:
            last = value.reshape(-1)[-1] if isinstance(value, torch.Tensor) else value  # of the last EM step
            about[name] = float(last)
    return about
