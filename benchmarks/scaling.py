"""What scaling does to PANTHER embeddings before a linear probe: by block, balanced, not at all; bags of 30 to 15,000 patches.

`python benchmarks/scaling.py` needs no arguments. Bags are generated: 16 tissues, 12 of them rare and absent from many slides. Every
combination of these is measured, and all are printed, whichever scaling they favour:

- where the class shows: in the look of two common tissues, or in the share of one;
- whether the test slides are like the training slides, or come from another site where two tissues that training hardly has are common;
- the EM preset: `paper` (no prior), `published-code` and `calibrated` (a prior pulls a nearly absent prototype to its centroid);
- many training slides in 48 dimensions, or few (40) in 256.

Prototypes are fitted on training slides, embeddings come from panther.aggregators, the probe is panther.models' logistic regression
with its inner cross-validation.
"""

import itertools
from collections.abc import Iterator

import numpy as np
import torch

import _harness as harness
from panther.aggregators import build
from panther.evaluation.metrics import binary_auroc
from panther.models.probes import fit_logistic
from panther.models.scaling import build_scaler
from panther.prototypes.kmeans import kmeans
from panther.types import Prototypes

TISSUES, TESTED, SEEDS = 16, 120, 3
COHORTS = ((120, 48), (40, 256))  # training slides, features
PATCHES = (30, 300, 15_000)
SIGNALS, SITES, PRESETS = ("look", "share"), ("same site", "other site"), ("paper", "published-code", "calibrated")
SCALINGS = {
    "none": ("none", {}),
    "block": ("block", {}),
    "balanced": ("balanced", {}),
}
STRENGTH = {30: 0.45, 300: 0.2, 15_000: 0.11}  # larger bags need less to tell the classes apart


def bags(
    patches: int, dim: int, labels: np.ndarray, test: np.ndarray, scenario: tuple[str, str], seed: int
) -> Iterator[torch.Tensor]:
    signal, site = scenario
    rng = np.random.default_rng(seed)
    tissues = rng.normal(0, 1.2, (TISSUES, dim))
    direction = rng.normal(size=(2, dim)) / np.sqrt(dim)
    usual = np.where(np.arange(TISSUES) < 4, 4.0, 0.08)  # twelve tissues are rare: absent from most slides
    for label, tested in zip(labels, test, strict=True):
        common = usual.copy()
        if site == "other site":
            common[-2:] = 1.0 if tested else 0.003
        if signal == "share":
            common[2] += label * STRENGTH[patches] * 8
        tissue = rng.choice(TISSUES, patches, p=rng.dirichlet(common))
        stain = rng.normal(0, 0.15, dim)  # every slide looks a little different as a whole
        x = tissues[tissue] + stain + rng.normal(0, 1, (patches, dim))
        if signal == "look":
            for k in range(2):
                x[tissue == k] += label * STRENGTH[patches] * 3 * direction[k]
        yield torch.tensor(x, dtype=torch.float32)


def auc_of(
    patches: int, cohort_of: tuple[int, int], scenario: tuple[str, str], seed: int
) -> dict[tuple[str, str], float]:
    """AUC on held-out slides of every EM preset and scaling, on the same bags."""
    trained, dim = cohort_of
    test = np.arange(trained + TESTED) >= trained
    rng = np.random.default_rng(seed + 1000)
    labels = np.concatenate([rng.permutation(np.arange(n) % 2) for n in (trained, TESTED)])
    cohort = list(bags(patches, dim, labels, test, scenario, seed))
    sample = torch.cat([cohort[i][:170] for i in np.flatnonzero(~test)])
    centroids = kmeans(sample, TISSUES, seed, 2)[0].centroids
    nearest = torch.cdist(sample, centroids).argmin(1)
    prototypes = Prototypes(centroids, within_variance=(sample - centroids[nearest]).square().mean(0))
    found = {}
    for preset in PRESETS:
        module = build("panther", prototypes, {"preset": preset})
        with torch.no_grad():
            x = torch.stack([module(bag).vector for bag in cohort])
        for title, (name, options) in SCALINGS.items():
            scaled = build_scaler(name, options)(x[~test], module.columns())(x).numpy()
            probe = fit_logistic(scaled[~test], labels[~test], 2, seed=seed)
            found[preset, title] = binary_auroc(labels[test] == 1, np.subtract(*probe.logits(scaled[test]).T[::-1]))
    return found


def main() -> None:
    torch.set_num_threads(1)
    print(harness.machine("scikit-learn"))
    print(f"C = {TISSUES}, AUC of a logistic probe on {TESTED} test slides, mean over {SEEDS} seeds.")
    for cohort_of in COHORTS:
        rows, table = [], []
        for signal, site, patches in itertools.product(SIGNALS, SITES, PATCHES):
            if cohort_of[1] > 48 and patches > 1000:
                continue  # minutes, for nothing that the smaller ones do not show
            runs = [auc_of(patches, cohort_of, (signal, site), seed) for seed in range(SEEDS)]
            for preset in PRESETS:
                means = [float(np.mean([run[preset, title] for run in runs])) for title in SCALINGS]
                table.append(means)
                best = list(SCALINGS)[int(np.argmax(means))]
                rows.append([signal, site, preset, f"{patches:,}", *(f"{m:.3f}" for m in means), best])
        title = f"{cohort_of[0]} training slides, d = {cohort_of[1]}"
        harness.table(title, ["class shows in", "test", "EM", "patches", *SCALINGS, "best"], rows)
        auc = np.array(table)
        lost = auc.max(1, keepdims=True) - auc
        wins = np.bincount(auc.argmax(1), minlength=len(SCALINGS))
        rows = [
            [t, f"{auc[:, k].mean():.3f}", f"{lost[:, k].max():.3f}", f"{wins[k]} of {len(auc)}"]
            for k, t in enumerate(SCALINGS)
        ]
        harness.table(f"{title}: summary", ["scaling", "mean AUC", "most lost to the best", "best in"], rows)


if __name__ == "__main__":
    main()
