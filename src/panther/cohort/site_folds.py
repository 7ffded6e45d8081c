r"""Balanced folds of whole sites: an integer programme, then local search.

With :math:`n_{sj}` patients of row :math:`j` (all, events, one class, one span of time ...) at site :math:`s`, and
:math:`x_{sf} = 1` where site :math:`s` goes to fold :math:`f`,

.. math:: \min_x \; \frac{1}{J} \sum_j \frac{1}{2 N_j} \sum_f \Big| \sum_s n_{sj} x_{sf} - \frac{N_j}{k} \Big|, \qquad \sum_f x_{sf} = 1

is the imbalance: the share of patients that would have to change their fold for perfect balance, averaged over the rows.
"""

import numpy as np

from panther.errors import InputError

STARTS = 100  # of the local search, fewer where there are hundreds of sites
MISSING_ROW = 10.0  # price of a fold without any patient of a row that every fold needs; larger than any imbalance


def imbalance_by_row(counts: np.ndarray, fold: np.ndarray, k: int) -> np.ndarray:
    """Share of the patients of each row that sit in a fold that has too many of them.

    Parameters
    ----------
    counts
        (S, J) patients per site (or any group) and row; no row is empty.
    fold
        (S,) fold of each group.
    """
    return 0.5 * np.abs(_totals(counts, fold, k) - counts.sum(0) / k).sum(0) / counts.sum(0)  # (J,)


def imbalance(counts: np.ndarray, fold: np.ndarray, k: int) -> float:
    """Mean of :func:`imbalance_by_row`: 0 is perfect, (k - 1) / k is all patients in one fold."""
    return float(imbalance_by_row(counts, fold, k).mean())


def site_preserving(
    counts: np.ndarray, needed: np.ndarray, k: int, *, seed: int = 0, seconds: float = 30.0, nodes: int = 60
) -> tuple[np.ndarray, float, bool]:
    """Fold of each site (S,), the imbalance that no site-preserving folds can be below, and whether the time limit stopped the solver.

    The number of nodes stops it at the same place on every machine; after a time limit another machine may have other folds.

    Parameters
    ----------
    counts
        (S, J) patients per site and row.
    needed
        (J,) bool, rows of which every fold must hold at least one (where the sites allow it), e.g. events.
    """
    if len(counts) < k:
        raise InputError(f"{k} folds need at least {k} sites: found {len(counts)}")
    rng = np.random.default_rng(seed)
    possible = needed & ((counts > 0).sum(0) >= k)
    solved, bound, hit_time_limit = _solve(counts, possible, k, seconds, nodes)
    affordable = max(2, min(STARTS, 10_000_000 // counts.size // len(counts)))
    starts = [rng.integers(k, size=len(counts)) for _ in range(affordable)]
    folds = [_descend(counts, possible, start, k) for start in ([solved] if solved is not None else []) + starts]
    scores = [float(_price(_totals(counts, fold, k), counts.sum(0), possible, k).sum()) for fold in folds]
    # numbered in a random order, so that fold 0 is not always the one with the largest site
    best = rng.permutation(k)[folds[int(np.argmin(np.round(scores, 12)))]].astype(np.int64)
    return best, min(bound, imbalance(counts, best, k)), hit_time_limit


def _totals(counts: np.ndarray, fold: np.ndarray, k: int) -> np.ndarray:
    return (np.arange(k)[:, None] == fold).astype(float) @ counts  # (k, J)


def _price(totals: np.ndarray, sums: np.ndarray, needed: np.ndarray, k: int) -> np.ndarray:
    """What each fold with these totals (..., J) adds to the imbalance, and a price where it lacks a row that all need."""
    off = (np.abs(totals - sums / k) / sums).mean(-1)  # (...,)
    return 0.5 * off + MISSING_ROW * (totals[..., needed] == 0).sum(-1)


def _descend(counts: np.ndarray, needed: np.ndarray, fold: np.ndarray, k: int) -> np.ndarray:
    """Best move of a site, or where none helps the best exchange of two, until that does not help either."""
    fold, sums = fold.copy(), counts.sum(0)
    while True:
        totals = _totals(counts, fold, k)  # (k, J)
        now = _price(totals, sums, needed, k)  # (k,)
        left = _price(totals[fold] - counts, sums, needed, k) - now[fold]  # (S,) gain of the fold that is left
        joined = _price(totals + counts[:, None], sums, needed, k) - now  # (S, k)
        moves = left[:, None] + joined
        moves[np.arange(len(fold)), fold] = 0
        if moves.min() < -1e-12:
            site, target = np.unravel_index(int(moves.argmin()), moves.shape)
            fold[site] = target
            continue
        a, b = np.nonzero(np.triu(fold[:, None] != fold))  # (P,) pairs in different folds
        change = counts[b] - counts[a]
        gains = _price(totals[fold[a]] + change, sums, needed, k) - now[fold[a]]
        gains += _price(totals[fold[b]] - change, sums, needed, k) - now[fold[b]]
        if gains.min(initial=0) >= -1e-12:
            return fold
        pair = int(gains.argmin())
        fold[a[pair]], fold[b[pair]] = fold[b[pair]], fold[a[pair]]


def _solve(
    counts: np.ndarray, needed: np.ndarray, k: int, seconds: float, nodes: int
) -> tuple[np.ndarray | None, float, bool]:
    """Integer programme with one variable per site and fold and one deviation per row and fold."""
    from scipy import optimize, sparse

    n_sites, n_rows = counts.shape
    cells, sums = n_sites * k, counts.sum(0)
    price = np.concatenate([np.zeros(cells), np.repeat(0.5 / sums / n_rows, k)])
    one_fold = sparse.kron(sparse.eye(n_sites), np.ones((1, k)))  # (S, S k)
    in_fold = sparse.kron(sparse.csr_matrix(counts.T), sparse.eye(k), format="csr")  # (J k, S k)
    target = np.repeat(sums / k, k)
    slack = sparse.eye(n_rows * k)
    constraints = [
        optimize.LinearConstraint(sparse.hstack([one_fold, sparse.csr_matrix((n_sites, n_rows * k))]), 1, 1),
        optimize.LinearConstraint(sparse.hstack([in_fold, -slack]), -np.inf, target),
        optimize.LinearConstraint(sparse.hstack([in_fold, slack]), target, np.inf),
    ]
    if needed.any():
        rows = in_fold[np.repeat(needed, k)]
        held = sparse.hstack([rows, sparse.csr_matrix((rows.shape[0], n_rows * k))])
        constraints.append(optimize.LinearConstraint(held, 1, np.inf))
    # Folds have no order: the largest site is in fold 0, the next in fold 0 or 1 ... That removes k! copies of every answer.
    largest_first = np.argsort(-counts.sum(1), kind="stable")
    upper = np.ones(cells + n_rows * k)
    upper[cells:] = np.inf
    for rank, site in enumerate(largest_first[: k - 1]):
        upper[site * k + rank + 1 : (site + 1) * k] = 0
    solution = optimize.milp(
        price,
        integrality=np.concatenate([np.ones(cells), np.zeros(n_rows * k)]),
        bounds=optimize.Bounds(0, upper),
        constraints=constraints,
        options={"node_limit": nodes, "time_limit": seconds},
    )
    bound = solution.mip_dual_bound
    fold = None if solution.x is None else solution.x[:cells].reshape(n_sites, k).argmax(1)
    hit_time_limit = solution.status == 1 and "Time limit" in str(solution.message)
    return fold, float(bound) if bound is not None and np.isfinite(bound) else 0.0, hit_time_limit
