r"""The one streaming kernel: walk a bag in blocks, assign each patch to prototypes, add up statistics.

Every prototype method is *assign, then accumulate*: an assignment :math:`A` (patches x prototypes) and the sums
:math:`A^T [1, z, z^2]`. Sums of blocks, slides, processes and machines simply add. Nothing of size N x d is ever held.

One interface, :func:`accumulate`, and several implementations of it: the torch kernel is the reference, the fallback and the
differentiable one; the others (:mod:`panther.statistics.kernels` says which and when) are faster and held to the same contract.
"""

from panther.statistics.assign import NEGLIGIBLE as NEGLIGIBLE
from panther.statistics.assign import Accumulated as Accumulated
from panther.statistics.assign import Assign as Assign
from panther.statistics.assign import Logits as Logits
from panther.statistics.assign import Statistics as Statistics
from panther.statistics.assign import everything as everything
from panther.statistics.assign import nearest as nearest
from panther.statistics.blocks import block_rows as block_rows
from panther.statistics.blocks import can_be_squared as can_be_squared
from panther.statistics.blocks import compute_dtype as compute_dtype
from panther.statistics.blocks import first_bad_row as first_bad_row
from panther.statistics.blocks import take as take
from panther.statistics.kernels import accumulate as accumulate
from panther.statistics.kernels import distances_to_prototypes as distances_to_prototypes
from panther.statistics.kernels import squared_distances as squared_distances
from panther.statistics.nearest_rows import Apart as Apart
from panther.statistics.nearest_rows import Cosine as Cosine
from panther.statistics.nearest_rows import Measure as Measure
from panther.statistics.nearest_rows import Nearest as Nearest
from panther.statistics.nearest_rows import most_similar as most_similar
from panther.statistics.nearest_rows import nearest_rows as nearest_rows
