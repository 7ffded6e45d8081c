"""Representations of a slide: one, or several side by side."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate, chain
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from panther.aggregators import aggregators, build
from panther.cohort.covariates import COVARIATES
from panther.errors import InputError, check_choice, check_whole, suggestion
from panther.mil import build as build_network
from panther.mil import networks
from panther.mixture import STARTING_VARIANCES
from panther.models.settings import Named
from panther.types import Basis, Prototypes

Columns = Sequence[tuple[int, str, int]]  # (prototype, statistic, dimension) of each number, as aggregators name them
COMPONENTS = 64
PRECOMPUTED = "given"  # vectors of a slide encoder
PCA = "pca"  # of the mean of all patches, a reduction that is fitted with the scaling on training rows


class Reduction(NamedTuple):
    """A fitted reduction of rows, x -> (x - mean) basis."""

    mean: Tensor  # (D,)
    basis: Tensor  # (D, k)

    def __call__(self, x: Tensor) -> Tensor:
        """Reduce rows (..., D) to (..., k)."""
        return (x - self.mean.to(x)) @ self.basis.to(x)


def principal_components(x: Tensor | np.ndarray, components: int = COMPONENTS) -> Reduction:
    r"""Mean and the first principal directions of rows (n, D), largest variance first; at most n - 1 of them, and D.

    .. math:: X - m = U S V^T,\quad B = V_{:, :k}

    The sign of each direction is such that its largest entry is positive.
    """
    rows = torch.as_tensor(np.asarray(x)).double()
    mean = rows.mean(0)
    if not bool(torch.isfinite(mean).all()):
        raise InputError("A training row holds NaN or an infinite number; embed it again")
    count = max(1, min(components, len(rows) - 1, rows.shape[1]))
    _, _, directions = torch.linalg.svd(rows - mean, full_matrices=False)
    basis = directions[:count].T  # (D, k)
    largest = basis.gather(0, basis.abs().argmax(0, keepdim=True))
    return Reduction(mean.float(), (basis * torch.where(largest < 0, -1.0, 1.0)).float())


def made_by(method: Named) -> Named:
    """Method that computes the embeddings of a row of a study."""
    # of precomputed vectors there is one row per slide; a patient's is their mean
    return Named(name="mean") if method.name in (PRECOMPUTED, PCA) else method


@contextmanager
def trial() -> Iterator[None]:
    """Try a user's settings without allocating memory: a width of a billion must not wait."""
    with warnings.catch_warnings(), torch.device("meta"):
        warnings.simplefilter("ignore")
        try:
            yield
        except InputError:
            raise
        except Exception as error:  # of a library
            raise InputError(f"a setting cannot be used: {' '.join(str(error).split())}") from error


def method_names() -> list[str]:
    """All methods: unsupervised embeddings, then networks."""
    return [*aggregators.names(), PCA, *networks.names()]


def check_method(name: str, options: Mapping[str, Any]) -> None:
    """Refuse an unknown method and unknown settings."""
    if name in (CONCAT, PCA):
        known = "of" if name == CONCAT else "components"
        for option, value in options.items():
            if option != known:
                raise InputError(f"{name} has no setting {option!r}; {suggestion(option, [known])}")
            if name == PCA:
                check_whole(option, value, 1, 1_000_000)
        return
    check_choice("method", name, method_names())
    surprise = torch.tensor([[1.0, 2.0]] * len(STARTING_VARIANCES))
    prototypes = Prototypes(torch.eye(2, 3), torch.ones(3), surprise=surprise)
    with trial():
        if name in networks:
            build_network(name, 3, 2, prototypes, options)
        else:
            build(name, prototypes, options)


CONCAT = "concat"  # several representations side by side
UNMADE = {PRECOMPUTED: "value", COVARIATES: COVARIATES}  # blocks that are not computed from patches -> their statistic


@dataclass(frozen=True, eq=False)
class Block:
    """One representation: its method, and its prototypes or feature space."""

    method: Named
    basis: Basis  # prototypes; else the features or vectors

    def parts(self) -> list[Columns]:
        """Columns that are scaled separately, from left to right: those of the method, then those of each of its optional blocks."""
        if self.method.name in UNMADE:
            return [[(-1, UNMADE[self.method.name], j) for j in range(self.basis.dim)]]
        method = made_by(self.method)
        module = build(method.name, self.basis, method.options)
        columns, ends = module.columns(), list(accumulate(module.parts()))
        return [columns[end - width : end] for width, end in zip(module.parts(), ends, strict=True)]


def columns_of(blocks: Sequence[Block]) -> list[tuple[int, str, int]]:
    """Columns of blocks side by side."""
    return list(chain.from_iterable(columns for block in blocks for columns in block.parts()))


def join_rows(tables: Sequence[tuple[Sequence[str], np.ndarray]]) -> tuple[list[str], np.ndarray]:
    """Samples that all representations have, in the order of the first, and their rows (n, D) side by side."""
    rows = [{name: row for row, name in enumerate(names)} for names, _ in tables]
    common = [name for name in tables[0][0] if all(name in known for known in rows)]
    return common, np.concatenate(
        [x[[known[n] for n in common]] for (_, x), known in zip(tables, rows, strict=True)], 1
    )


def reads_coordinates(method: Named) -> bool:
    """Whether a method reads the coordinates of patches."""
    method = made_by(method)
    return method.name in aggregators and aggregators.entry(method.name).metadata.reads_places(method.options)


def needs_prototypes(method: Named) -> bool:
    """Whether a method needs prototypes."""
    registry = networks if method.name in networks else aggregators
    return method.name in registry and registry.entry(method.name).metadata.needs_prototypes
