"""Mixtures of several bags at once on a GPU, where launching and waiting cost more than the sums of one bag."""

import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

import torch
from torch import Tensor

from panther.mixture.fit import fit_mixture
from panther.mixture.replayed import can_replay, launch_replayed
from panther.mixture.settings import EMSettings
from panther.mixture.steps import MixtureFit
from panther.types import Mixture, Ragged, Rows

FULL_BYTES = 128 << 20  # of a group's bags, at which it is launched
MOST_BAGS = 8  # one CUDA graph is recorded and kept for each number of bags


class BatchedFitter:
    """Fits bags from the same start, a few at a time; every mixture has the bytes of a separate fit.

    A group is launched when it is full or one of its mixtures is needed, after the group before it has finished, so that at most two
    are on the GPU.
    """

    def __init__(self, prototypes: Tensor, variance: Tensor, settings: EMSettings) -> None:
        self._start = prototypes, variance, settings
        self._group, self._last = _Group(self._start), _Group(self._start)

    def add(self, x: Rows) -> "PendingFit | None":
        """Add a bag on the GPU; None if it must be fitted separately."""
        prototypes, variance, _ = self._start
        alone = threading.current_thread() is threading.main_thread()  # elsewhere nothing is replayed
        if not (alone and isinstance(x, Tensor) and len(x) and can_replay(x, prototypes, variance, None)):
            return None
        if self._group.launched or not self._group.takes(x):
            self._launch()
            self._last, self._group = self._group, _Group(self._start)
        self._group.bags.append(x)
        if self._group.is_full:
            self._launch()
        return PendingFit(self, self._group, len(self._group.bags) - 1)

    def results(self, group: "_Group") -> list[MixtureFit | Exception]:
        """Wait for the mixtures of a group."""
        if group is self._group:
            self._launch()
        return group.results()

    def _launch(self) -> None:
        if not self._group.launched:
            self._group.launch()
            self._last.results()


@dataclass(frozen=True)
class PendingFit:
    """A mixture that is being fitted."""

    fits: BatchedFitter
    group: "_Group"
    number: int  # of the bag in its group

    def is_here(self) -> bool:
        """Whether it is finished."""
        return self.group.is_done

    def wait(self) -> MixtureFit:
        """Return it."""
        result = self.fits.results(self.group)[self.number]
        if isinstance(result, Exception):
            raise result
        return result


class _Group:
    """Bags, or their mixtures once they are finished."""

    def __init__(self, start: tuple[Tensor, Tensor, EMSettings]) -> None:
        self._start, self.bags, self.launched = start, list[Tensor](), False
        self._fit: Callable[[], MixtureFit | None] = lambda: None
        self._results: list[MixtureFit | Exception] | None = None

    @property
    def is_full(self) -> bool:
        size = sum(bag.numel() * bag.element_size() for bag in self.bags)
        return size >= FULL_BYTES or len(self.bags) >= MOST_BAGS

    @property
    def is_done(self) -> bool:
        return self._results is not None

    def takes(self, x: Tensor) -> bool:
        """Whether a bag has the type and width of the others."""
        return all(bag.dtype == x.dtype and bag.shape[1] == x.shape[1] for bag in self.bags[:1])

    def launch(self) -> None:
        """Start the fit; if the GPU lacks memory for all bags, they are fitted one by one."""
        self.launched = True
        with suppress(torch.cuda.OutOfMemoryError), torch.no_grad():
            rows = Ragged(torch.cat(self.bags), tuple(map(len, self.bags))) if len(self.bags) > 1 else self.bags[0]
            self._fit = launch_replayed(rows, *self._start, keep_assignment=False, keep_scores=False, to_host=True)

    def results(self) -> list[MixtureFit | Exception]:
        """Wait for the mixtures."""
        if self._results is None:
            fit = self._fit()
            self._results = [self._alone(bag) for bag in self.bags] if fit is None else _split(fit)
            self.bags, self._fit = [], lambda: None  # release the memory
        return self._results

    def _alone(self, bag: Tensor) -> MixtureFit | Exception:
        try:
            with torch.no_grad():
                return fit_mixture(bag, *self._start)
        except Exception as error:  # of this bag
            return error


def _split(fit: MixtureFit) -> list[MixtureFit | Exception]:
    """The fit of each bag; of one alone it has no dimension for the bags."""
    if fit.mass.dim() == 1:
        return [fit]
    each = zip(*fit.mixture, fit.mass, fit.log_likelihood, strict=True)
    return [MixtureFit(Mixture(*mixture), mass, likelihood, None) for *mixture, mass, likelihood in each]
