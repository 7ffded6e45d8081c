"""What fitting a mixture gives."""

from typing import NamedTuple

from torch import Tensor

from panther.statistics import Accumulated, Logits
from panther.types import Mixture


class MixtureFit(NamedTuple):
    """A fitted mixture and what is worth knowing about the fit; a leading batch dimension is allowed."""

    mixture: Mixture
    mass: Tensor  # (C,), expected number of patches per component, without the prior
    log_likelihood: Tensor  # (steps,), of the parameters that entered each step
    assignment: Tensor | None  # (N, C), the posterior that made the parameters
    scores: Tensor | None = None  # (N,), log p of each patch under the mixture that EM starts from


class Start(NamedTuple):
    """What EM starts from. It depends on the prototypes, the starting variance and the temperature, and on no bag."""

    origin: Tensor  # (d,); this and the next two in float64
    centres: Tensor  # (C, d), prototypes about the origin
    variance: Tensor  # (1, d)
    assign: Logits  # of the first E-step, in the type of the arithmetic


class FirstStep(NamedTuple):
    """The first E-step of a bag."""

    start: Start
    sums: Accumulated
