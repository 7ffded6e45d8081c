"""The contract of aggregators and their registry."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from panther.errors import InputError, plain
from panther.registry import Registry
from panther.types import Aggregator, Basis, Prototypes

Promise = bool | Callable[[Any], bool]


@dataclass(frozen=True)
class MethodInfo:
    """Properties of a method, which the contract tests check: a bool, or a function of the module; none by default."""

    title: str  # as in papers
    permutation_invariant: Promise = False
    duplication_invariant: Promise = False
    differentiable: Promise = False
    # settings -> whether there is a view by prototypes
    tokens: Callable[[Mapping[str, Any]], bool] = lambda options: False
    options: tuple[str, ...] = ()  # names of the settings
    variants: tuple[Mapping[str, Any], ...] = ({},)  # settings that the contract tests use
    trainable: bool = False  # whether the prototypes can be trained end to end
    needs_prototypes: bool = True  # else it needs only the features
    reads_places: Callable[[Mapping[str, Any]], bool] = lambda options: (
        False
    )  # settings -> whether it reads coordinates


aggregators: Registry[Callable[..., Aggregator], MethodInfo] = Registry("method", MethodInfo)


def build(
    method: str,
    prototypes: Basis,
    options: Mapping[str, Any] | None = None,
    *,
    trainable: bool = False,
    **settings: Any,
) -> Aggregator:
    """Build a method as a torch module.

    Parameters
    ----------
    method : str
        `panther`, `ot`, `h2t`, `protocounts` or `deepsets`; without prototypes `mean`, `mean-std`, `max` or `top-k`.
    prototypes : Prototypes or FeatureSpace
        Fitted prototypes; of methods without any, the width of the features.
    options : mapping, optional
        Settings of the method, e.g. ``{"preset": "calibrated"}``.
    trainable : bool, default=False
        Whether the centroids are parameters, for end-to-end training; `panther` only.
    **settings
        The same as ``options``, e.g. ``preset="calibrated"``.

    Returns
    -------
    Aggregator
        Module that turns patches (N, d), or padded ones (B, N, d) with a mask (B, N), into a `SlideEmbedding`.

    Examples
    --------
    >>> import torch, panther
    >>> module = panther.build("panther", panther.Prototypes(torch.eye(3)), trainable=True)
    >>> module(torch.randn(50, 3)).vector.sum().backward()
    >>> module.centroids.grad.shape
    torch.Size([3, 3])
    """
    options = plain({**(options or {}), **settings})
    if trainable and not aggregators.entry(method).metadata.trainable:
        can = ", ".join(entry.name for entry in aggregators if entry.metadata.trainable)
        raise InputError(f"trainable: prototypes of {method!r} cannot be trained, only those of {can}")
    aggregators.check_options(method, options)
    if aggregators.entry(method).metadata.needs_prototypes and not isinstance(prototypes, Prototypes):
        raise InputError(f"prototypes: the method {method!r} needs prototypes")
    try:
        return aggregators[method](prototypes, **options, **({"trainable": True} if trainable else {}))
    except TypeError as error:
        raise InputError(f"A setting of {method!r} has the wrong type ({error}).") from error


# Cached: the columns of a wide embedding are tens of thousands of tuples, which every model of a study reads.
@lru_cache(8)
def per_prototype_means(count: int, dim: int) -> tuple[tuple[int, str, int], ...]:
    """Columns of methods that keep one mean per prototype."""
    return tuple((c, "mean", j) for c in range(count) for j in range(dim))


@lru_cache(8)
def mixture_columns(owners: tuple[int, ...], dim: int) -> tuple[tuple[int, str, int], ...]:
    """Columns of whole components, [pi_c, mu_c, Sigma_c] of each owner."""
    token = [("weight", -1), *((statistic, j) for statistic in ("mean", "variance") for j in range(dim))]
    return tuple((c, statistic, j) for c in owners for statistic, j in token)
