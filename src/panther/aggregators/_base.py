"""The contract of aggregators and their registry."""

from collections.abc import Callable, Mapping
from typing import Any

from panther.errors import InputError, suggestion
from panther.registry import Registry
from panther.types import Aggregator, Prototypes

# Metadata is the contract: `permutation_invariant`, `duplication_invariant`, `differentiable` (a bool, or a function of the
# module) promise or honestly exempt; `options` names the settings, `tokens` says for
# which of them there is a per-prototype view; the contract suite runs over every one of `variants`.
aggregators: Registry[Callable[..., Aggregator]] = Registry("method")


def build(
    method: str, prototypes: Prototypes, options: Mapping[str, Any] | None = None, *, trainable: bool = False
) -> Aggregator:
    """Build a method as a torch module.

    Parameters
    ----------
    method : str
        `panther`, `ot`, `h2t`, `protocounts` or `deepsets`.
    prototypes : Prototypes
        Fitted prototypes.
    options : mapping, optional
        Settings of the method, e.g. ``{"preset": "calibrated"}``.
    trainable : bool, default=False
        Whether the centroids are parameters, for end-to-end training.

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
    known = aggregators.entry(method).metadata["options"]
    if trainable and not aggregators.entry(method).metadata.get("trainable"):
        can = ", ".join(entry.name for entry in aggregators if entry.metadata.get("trainable"))
        raise InputError(
            f"The prototypes of {method!r} cannot be trained: nothing flows back to them; those of {can} can."
        )
    for name in options or {}:
        if name not in known:
            raise InputError(f"The method {method!r} has no setting {name!r}; {suggestion(name, known)}.")
    try:
        return aggregators[method](prototypes, **(options or {}), **({"trainable": True} if trainable else {}))
    except TypeError as error:
        raise InputError(f"A setting of {method!r} has the wrong type ({error}).") from error


def per_prototype_means(count: int, dim: int) -> list[tuple[int, str, int]]:
    """Columns of methods that keep one mean a prototype."""
    return [(c, "mean", j) for c in range(count) for j in range(dim)]
