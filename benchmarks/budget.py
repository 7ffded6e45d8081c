"""How few patches of a slide need to be encoded: samples of 2 to 25 % against all patches.

`python benchmarks/budget.py BANK` composes cohorts of slides of about 5,200 patches from a bank of encoded views (`_budget_bank.py`):
regions of tissue, in each of them views of one tile after the other. It prints the errors of pi and mu, the loss of the task's score
(paired, with intervals over patients) and the coverage of the standard errors, for samples that are uniform, systematic along a curve,
even (one patch of every stretch of the curve: what `panther slides --budget` draws), even within strata of a cheap look at every patch,
and even with the outliers of that look added. `--coverage` simulates the coverage on random fields instead.
"""

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from scipy.ndimage import gaussian_filter
from sklearn.cluster import KMeans, MiniBatchKMeans
from sklearn.linear_model import Ridge, RidgeCV
from sklearn.metrics import roc_auc_score

import panther
from _harness import machine
from _planted_arrangements import Arrangement, of_shares, with_needle
from panther.statistics.even_sample import draw_even, order_along_curve, standard_error

PATCHES = 5184
FRACTIONS = (0.02, 0.05, 0.10, 0.25)
FOLDS = 5
STAINS = 2  # laboratories
TILES = 12  # of a tissue, on one slide
COMPONENTS = 16

Plan = Callable[[np.random.Generator, int], Arrangement]  # rng, class
Sample = tuple[np.ndarray, np.ndarray]  # rows, weights


@dataclass(frozen=True)
class Bank:
    """Features (stains, tiles, views, d) of the dear network, and of the cheap look at the same views."""

    dear: np.ndarray
    look: np.ndarray
    tissue: np.ndarray  # (tiles,)
    names: list[str]

    @classmethod
    def load(cls, folder: Path) -> "Bank":
        """Read what `_budget_bank.py` wrote."""
        parts = {name: [np.load(file) for file in sorted(folder.glob(f"{name}-*.npy"))] for name in ("lite2", "look")}
        about = np.load(folder / "tissue.npz")
        dear, look = (np.concatenate(parts[name], 2) for name in parts)
        return cls(dear, look, about["tissue"], about["names"].tolist())


@dataclass(frozen=True)
class ComposedSlide:
    """One slide, its rows in the order of the curve."""

    dear: np.ndarray  # (N, d)
    look: np.ndarray  # (N, d')
    label: int
    fold: int


def plans(names: list[str]) -> dict[str, tuple[Plan, float]]:
    """Tasks on these tissues: two subtypes whose shares overlap, and a lesion of 1 and 0.3 % or none; with the share of the lesion."""
    real = "scc" in names
    place = {name: number for number, name in enumerate(names)}

    def around(rng: np.random.Generator, shares: Mapping[str, float]) -> np.ndarray:
        found = np.zeros(len(names))
        for name, share in shares.items():
            found[place[name]] = share * rng.uniform(0.6, 1.4)
        return found / found.sum()

    def subtype(rng: np.random.Generator, label: int) -> Arrangement:
        mix = np.full(len(names), 2.0)
        one, other = ("normal", "scc") if real else ("glandular-tumour", "solid-tumour")
        high, low = (4.0, 1.5) if real else (3.2, 2.0)
        mix[place[one]], mix[place[other]] = (high, low) if label else (low, high)
        return of_shares(rng, PATCHES, rng.dirichlet(mix))

    def lesion(share: float) -> Plan:
        benign = {"normal": 1.0} if real else {"lymphocytes": 0.6, "stroma": 0.2, "adipose": 0.2}
        needle = place["scc" if real else "glandular-tumour"]
        return lambda rng, label: with_needle(rng, PATCHES, around(rng, benign), needle, share * label)

    return {"subtype": (subtype, 0.0), "lesion 1 %": (lesion(0.01), 0.01), "lesion 0.3 %": (lesion(0.003), 0.003)}


def compose(bank: Bank, plan: Plan, number: int, seed: int) -> ComposedSlide:
    """Slide of a patient: regions of one tile each, under the stain of one laboratory."""
    rng = np.random.default_rng([seed, number])
    label, fold = number % 2, number // 2 % FOLDS
    arrangement = plan(rng, label)
    cells, tile = arrangement.cells, np.zeros(len(arrangement.cells), np.int64)
    for tissue in np.unique(arrangement.tissue):
        rows = np.flatnonzero(arrangement.tissue == tissue)
        pool = np.flatnonzero(bank.tissue == tissue)
        chosen = rng.choice(pool, min(TILES, len(pool)), replace=False)
        seeds = cells[rng.choice(rows, len(chosen))]
        tile[rows] = chosen[np.square(cells[rows, None] - seeds).sum(2).argmin(1)]
    view, stain = rng.integers(bank.dear.shape[2], size=len(tile)), rng.integers(STAINS)
    order = order_along_curve(cells, 1)
    tile, view = tile[order], view[order]
    dear, look = (x[stain, tile, view].astype(np.float32) for x in (bank.dear, bank.look))
    return ComposedSlide(dear, look, label, fold)


def strata(look: np.ndarray) -> np.ndarray:
    """Cluster of every patch by the cheap look, at most 24 of a slide."""
    return MiniBatchKMeans(24, n_init=1, random_state=0, batch_size=2048).fit_predict(look)


def surprise(look: np.ndarray) -> np.ndarray:
    """Distance of every patch from the commonest looks of its slide: 12 clusters of a quarter of the patches, small clusters left out."""
    fitted = KMeans(12, n_init=1, random_state=0).fit(look[::4])
    common = fitted.cluster_centers_[np.bincount(fitted.labels_, minlength=12) > 0.02 * len(look[::4])]
    return np.square(look[:, None] - common).sum(2).min(1)


def samplers(slide: ComposedSlide) -> dict[str, Callable[[int, int], Sample]]:
    """Ways to draw rows of a slide: (count, seed) -> rows and weights."""
    total = len(slide.dear)
    grouped = np.lexsort((np.arange(total), strata(slide.look)))
    unusual = np.argsort(-surprise(slide.look))

    def equal(rows: np.ndarray) -> Sample:
        return rows, np.full(len(rows), total / len(rows))

    def uniform(count: int, seed: int) -> Sample:
        return equal(np.random.default_rng([1, seed]).choice(total, count, replace=False))

    def systematic(count: int, seed: int) -> Sample:
        start = np.random.default_rng([2, seed]).random()
        return equal(((start + np.arange(count)) * total / count).astype(int))

    def even(count: int, seed: int) -> Sample:
        return equal(draw_even(total, count, seed))

    def stratified(count: int, seed: int) -> Sample:
        return equal(grouped[draw_even(total, count, seed)])

    def with_outliers(count: int, seed: int) -> Sample:
        added = unusual[: count // 5]
        rest = np.setdiff1d(np.arange(total), added)
        drawn = rest[draw_even(len(rest), count - len(added), seed)]
        return np.concatenate([added, drawn]), np.repeat([1.0, len(rest) / len(drawn)], [len(added), len(drawn)])

    return {"uniform": uniform, "systematic": systematic, "even": even, "strata": stratified, "outliers": with_outliers}


def embed(z: np.ndarray, q: np.ndarray, sample: Sample, prototypes: panther.Prototypes) -> np.ndarray:
    """PANTHER's (C, 1 + 2 d) after one step, of weighted patches: the posteriors of a first step depend on the prototypes only."""
    rows, weights = sample
    mass = q[rows] * weights[:, None].astype(np.float32)
    share, some = mass.sum(0), mass.sum(0) > 1e-6
    mean, square = (mass.T @ x[rows] / np.maximum(share, 1e-6)[:, None] for x in (z, z * z))
    mean = np.where(some[:, None], mean, prototypes.centroids.numpy())
    variance = np.where(some[:, None], np.maximum(square - mean**2, 0), prototypes.within_variance.numpy())
    return np.concatenate([(share / share.sum())[:, None], mean, variance], 1)


def scores(tokens: np.ndarray, centroids: np.ndarray, labels: np.ndarray, folds: np.ndarray) -> np.ndarray:
    """Out-of-fold scores of a ridge probe on embeddings (patients, C, 1 + 2 d); its penalty is chosen on the training patients.

    Means and variances count by their prototype's share, or a prototype that a slide has one patch of would count as much as any.
    """
    share, dim = tokens[..., :1], centroids.shape[1]
    parts = [share, share * (tokens[..., 1 : 1 + dim] - centroids), share * tokens[..., 1 + dim :]]
    found = np.empty(len(labels))
    for fold in range(FOLDS):
        train = folds != fold
        flat = [part.reshape(len(labels), -1) for part in parts]
        centred = [part - part[train].mean(0) for part in flat]
        x = np.concatenate([part / np.sqrt(np.square(part[train]).sum(1).mean()) for part in centred], 1)
        found[~train] = RidgeCV(np.logspace(-3, 2, 11)).fit(x[train], 2.0 * labels[train] - 1).predict(x[~train])
    return found


def detector(bank: Bank, lesion: int) -> np.ndarray:
    """Weights (d,) of a classifier of patches, lesion or benign, which has seen half of the tiles."""
    tiles = np.arange(0, len(bank.tissue), 2)
    x = bank.dear[:STAINS, tiles].astype(np.float32)
    y = np.broadcast_to((bank.tissue[tiles] == lesion)[:, None], x.shape[:3])
    return Ridge(10.0).fit(x.reshape(-1, x.shape[-1]), 2.0 * y.ravel() - 1).coef_.astype(np.float32)


def highest(patch_scores: np.ndarray, sample: Sample, share: float) -> float:
    """Mean score of the highest ``share`` of the patches, by weight; of at least one."""
    rows, weights = sample
    order = np.argsort(-patch_scores[rows])
    mass = np.cumsum(weights[order]) / weights.sum()
    return float(patch_scores[rows][order][: 1 + np.searchsorted(mass, share)].mean())


def fit(slides: list[ComposedSlide]) -> panther.Prototypes:
    """Prototypes of some slides that are not evaluated."""
    x = np.concatenate([slide.dear[::4] for slide in slides])
    found = KMeans(COMPONENTS, n_init=2, random_state=0).fit(x)
    within = np.square(x - found.cluster_centers_[found.labels_]).mean(0)
    return panther.Prototypes(
        torch.from_numpy(found.cluster_centers_.astype(np.float32)), torch.from_numpy(within.astype(np.float32))
    )


@dataclass
class Tally:
    """What is added up for one way to sample and one fraction."""

    pi: list[float]  # mean squared error of a slide's proportions
    mu: list[float]  # of its means, in radii of a cluster, weighted by proportion
    covered: list[float]
    vectors: list[np.ndarray]  # of one slide and one draw after the other
    detected: list[float]  # score of the detector


def evaluate(
    bank: Bank, plan: Plan, share: float, patients: int, draws: int, seed: int
) -> tuple[list[np.ndarray], dict[tuple[str, float], Tally], tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Out-of-fold scores with all patches, by the probe and the detector, tallies; centroids, labels and folds."""
    prototypes = fit([compose(bank, plan, number, seed + 500) for number in range(10)])
    module = panther.build("panther", prototypes, variance="pooled")
    radius, tallies, every, about, detected = float(prototypes.within_variance.sum()), {}, [], [], []
    lesion = bank.names.index("scc" if "scc" in bank.names else "glandular-tumour")
    direction = detector(bank, lesion) if share else np.zeros(bank.dear.shape[-1], np.float32)
    for number in range(patients):
        slide = compose(bank, plan, number, seed)
        z = slide.dear
        whole = module(torch.from_numpy(z), with_assignment=True)
        q, total = whole.assignment.numpy(), len(z)
        all_patches = np.arange(total), np.ones(total)
        truth = embed(z, q, all_patches, prototypes)
        patch_scores = z @ direction
        detected.append(highest(patch_scores, all_patches, share / 2))
        if not number:
            common = truth[:, 0] > 0.01
            assert np.allclose(truth[common], whole.tokens.numpy()[common], atol=2e-2, rtol=1e-2)
        every.append(truth)
        about.append((slide.label, slide.fold))
        for name, draw in samplers(slide).items():
            for fraction in FRACTIONS:
                tally = tallies.setdefault((name, fraction), Tally([], [], [], [], []))
                for repeat in range(draws):
                    sample = draw(round(fraction * total), 1000 * number + repeat)
                    found = embed(z, q, sample, prototypes)
                    off = found - truth
                    tally.pi.append(float(np.square(off[:, 0]).mean()))
                    tally.mu.append(float(truth[:, 0] @ np.square(off[:, 1 : 1 + z.shape[1]]).sum(1)) / radius)
                    error = standard_error(q[sample[0]], total)
                    usual = truth[:, 0] * len(sample[0]) > 5
                    tally.covered.append(float((np.abs(off[:, 0]) <= 1.96 * error)[usual].mean()))
                    tally.vectors.append(found.astype(np.float32))
                    tally.detected.append(highest(patch_scores, sample, share / 2))
    labels, folds = np.array(about).T
    centroids = prototypes.centroids.numpy()
    return [scores(np.array(every), centroids, labels, folds), np.array(detected)], tallies, (centroids, labels, folds)


def auc_losses(whole: np.ndarray, parts: np.ndarray, labels: np.ndarray, seed: int = 0) -> tuple[float, np.ndarray]:
    """Mean loss of AUC over draws (draws, patients), and the losses of 200 resamples of the patients."""

    def loss(rows: np.ndarray) -> float:
        return roc_auc_score(labels[rows], whole[rows]) - float(
            np.mean([roc_auc_score(labels[rows], p[rows]) for p in parts])
        )

    rng = np.random.default_rng(seed)
    groups = [np.flatnonzero(labels == label) for label in (0, 1)]
    resampled = [loss(np.concatenate([rng.choice(g, len(g)) for g in groups])) for _ in range(200)]
    return loss(np.arange(len(labels))), np.array(resampled)


def task_table(bank: Bank, task: str, plan: Plan, share: float, cohorts: int, patients: int, draws: int) -> None:
    """Print one task: the loss of the probe, and for a lesion that of a detector that knows it."""
    runs = [evaluate(bank, plan, share, patients, draws, 10_000 * (1 + cohort)) for cohort in range(cohorts)]
    judges = [0, 1] if share else [0]
    base = [np.mean([roc_auc_score(about[1], whole[judge]) for whole, _, about in runs]) for judge in judges]
    titles = [f"loss of AUC, {('probe', 'detector')[judge]} | 95 % interval" for judge in judges]
    known = ", ".join(
        f"{value:.3f} ({('probe', 'detector')[judge]})" for judge, value in zip(judges, base, strict=True)
    )
    print(f"\n### {task}: AUC of all patches {known}; {cohorts} cohorts of {patients} patients, {draws} draws\n")
    print(f"| patches | sample | rms error of pi | error of mu | {' | '.join(titles)} | coverage |")
    print("|--:|--|--:|--:|" + "--:|--|" * len(judges) + "--:|")
    for fraction in FRACTIONS:
        for name in dict.fromkeys(name for name, _ in runs[0][1]):
            tallies = [tallies[name, fraction] for _, tallies, _ in runs]
            pi, mu, covered = (np.concatenate([getattr(t, what) for t in tallies]) for what in ("pi", "mu", "covered"))
            cells = []
            for judge in judges:
                losses, resampled = [], []
                for cohort, ((whole, _, about), tally) in enumerate(zip(runs, tallies, strict=True)):
                    if judge:
                        parts = np.array(tally.detected).reshape(patients, draws).T
                    else:
                        vectors = np.array(tally.vectors)
                        vectors = vectors.reshape(patients, draws, *vectors.shape[1:])
                        parts = np.stack([scores(vectors[:, draw], *about) for draw in range(draws)])
                    loss, again = auc_losses(whole[judge], parts, about[1], cohort)
                    losses.append(loss)
                    resampled.append(again)
                low, high = np.percentile(np.mean(resampled, 0), [2.5, 97.5])
                cells.append(f"{np.mean(losses):+.3f} | {low:+.3f} to {high:+.3f}")
            cover = f"{np.nanmean(covered):.3f}" if name in ("systematic", "even") else ""
            errors = f"{np.sqrt(pi.mean()):.4f} | {np.sqrt(mu.mean()):.3f}"
            print(f"| {fraction:.0%} | {name} | {errors} | {' | '.join(cells)} | {cover} |", flush=True)


def field(rng: np.random.Generator, kind: str, length: float, share: float, side: int = 100) -> np.ndarray:
    """Membership of the patches of a drawn piece of tissue, in the order of the curve: regions of a ``length`` of patches."""

    def smooth(scale: float) -> np.ndarray:
        noise = rng.normal(size=(side, side))
        noise = gaussian_filter(noise, scale, mode="wrap") if scale else noise
        return (noise - noise.mean()) / noise.std()

    tissue, z = smooth(side / 8) > -0.3, smooth(length)
    level = np.quantile(z[tissue], 1 - share)
    if kind == "regions":
        values = (z > level).astype(float)
    elif kind == "soft":
        values = 1 / (1 + np.exp(-3 * (z - level)))
    else:  # mixed: a prototype that is common in the regions and rare elsewhere
        values = (rng.random(z.shape) < np.where(z > level, 0.7, 0.05)).astype(float)
    rows, columns = np.nonzero(tissue)
    return values[rows, columns][order_along_curve(np.stack([columns, rows], 1), 1)]


FIELDS = {
    "white noise, 5 %": ("regions", 0, 0.05),
    "white noise, 30 %": ("regions", 0, 0.3),
    "regions of 1 patch": ("regions", 1, 0.1),
    "regions of 5 patches": ("regions", 5, 0.3),
    "regions of 12 patches": ("regions", 12, 0.3),
    "regions of 25 patches": ("regions", 25, 0.4),
    "mixed, 3 patches": ("mixed", 3, 0.3),
    "mixed, 10 patches": ("mixed", 10, 0.3),
    "soft, 5 patches": ("soft", 5, 0.1),
    "soft, 12 patches": ("soft", 12, 0.3),
}


def simulate(kind: str, fraction: float, worlds: int = 40, draws: int = 15) -> dict[str, tuple[float, float]]:
    """Rms error of a share and coverage of its 95 % interval: uniform with the usual error, systematic and even with ours."""
    errors: dict[str, list[tuple[float, bool]]] = {}
    for world in range(worlds):
        rng = np.random.default_rng([world, 7])
        values = field(rng, *FIELDS[kind])
        total = len(values)
        count = round(fraction * total)
        for draw in range(draws):
            seed = 1000 * world + draw
            rows = {
                "uniform": rng.choice(total, count, replace=False),
                "systematic": ((rng.random() + np.arange(count)) * total / count).astype(int),
                "even": draw_even(total, count, seed),
            }
            for name, chosen in rows.items():
                part = values[chosen]
                off = part.mean() - values.mean()
                usual = np.sqrt((1 - count / total) * part.var(ddof=1) / count)
                error = usual if name == "uniform" else standard_error(part[:, None], total)[0]
                errors.setdefault(name, []).append((off, abs(off) <= 1.96 * error + 1e-12))
    return {
        name: (float(np.sqrt(np.mean([o**2 for o, _ in e]))), float(np.mean([c for _, c in e])))
        for name, e in errors.items()
    }


def coverage_table() -> None:
    """Print errors and coverage on random fields."""
    print(
        "| field | patches | "
        + " | ".join(f"{name}: rms error | coverage" for name in ("uniform", "systematic", "even"))
        + " |"
    )
    print("|--|--:|" + "--:|" * 6)
    for fraction in (*FRACTIONS, 0.5):
        means = []
        for kind in FIELDS:
            found = simulate(kind, fraction)
            means.append([cover for _, cover in found.values()])
            print(
                f"| {kind} | {fraction:.0%} | " + " | ".join(f"{e:.4f} | {c:.3f}" for e, c in found.values()) + " |",
                flush=True,
            )
        print(f"| mean | {fraction:.0%} | " + " | ".join(f"| {c:.3f}" for c in np.mean(means, 0)) + " |", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("bank", type=Path, nargs="?")
    parser.add_argument("--coverage", action="store_true")
    parser.add_argument("--cohorts", type=int, default=3)
    parser.add_argument("--patients", type=int, default=80)
    parser.add_argument("--draws", type=int, default=4)
    given = parser.parse_args()
    print(machine("scikit-learn"))
    if given.coverage:
        coverage_table()
        return
    bank = Bank.load(given.bank)
    for task, (plan, share) in plans(bank.names).items():
        task_table(bank, task, plan, share, given.cohorts, given.patients, given.draws)


if __name__ == "__main__":
    main()
