"""What should a head read of a mixture? The protocol of docs/decisions/0009: PANTHER's scalings beside its simplest rivals.

    panther slides TILES -o job --encoder lite0 --dtype float32     # TILES: a folder per class, e.g. LC25000's aca, normal, scc
    python benchmarks/claims.py --cohorts 4 --folder claims --draw-only # the demo's synthetic slides
    python benchmarks/representation.py --tiles job/tiles/features_lite0 --drawn claims [--heads] [--look first]

Without tiles or drawn slides the generated cohorts alone are judged. All methods share patients, folds and prototypes (C = 16); a score is the AUC,
or the c-index for survival, on test patients, averaged over folds and seeds. *Regret* is how far a candidate stays below the best of
DeepSets, ProtoCounts and OT, 0 where it does not.
"""

import argparse
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import _harness as harness
from _representation_cohorts import LOOKS, Cohort, Make, cohorts
from panther.aggregators import build
from panther.cohort.targets import Classes
from panther.evaluation.metrics import binary_auroc
from panther.evaluation.survival_metrics import concordance
from panther.models.heads import build_head, token_shape
from panther.models.probes import fit_suitable
from panther.models.scaling import build_scaler
from panther.models.settings import USUAL_LOSS, usual_training
from panther.models.tasks import fit_task
from panther.models.trainer import ArraySource, fit, predict_logits
from panther.prototypes import KMeansSettings, fit_bags
from panther.types import Bag

C = 16
RIVALS = ("deepsets", "protocounts", "ot")
OTHERS = (*RIVALS, "h2t")
SCALINGS = {  # of PANTHER All
    "balanced": ("balanced", {}),
    "share-weighted, equal": ("share-weighted", {"weigh": False}),
    "share-weighted": ("share-weighted", {}),
}
HEADS = {  # the paper's structured head, as trained in the paper
    "MLP, balanced": ("balanced", {}),
    "MLP, share-weighted": ("share-weighted", {"gates": False}),
    "MLP, share-weighted, gates": ("share-weighted", {"gates": True}),
}
Scores = dict[tuple[str, str], dict[str, float]]  # (kind, cohort) -> candidate -> score


def judge(make: Make, heads: bool) -> Scores:
    torch.set_num_threads(1)
    found: Scores = {}
    for cohort in make():
        folds = [judge_fold(cohort, train, test, heads) for train, test in cohort.folds]
        found[cohort.kind, cohort.name] = {name: float(np.nanmean([f[name] for f in folds])) for name in folds[0]}
    return found


def judge_fold(cohort: Cohort, train: np.ndarray, test: np.ndarray, heads: bool) -> dict[str, float]:
    prototypes = fit_bags([Bag(str(i), cohort.bags[i]) for i in train], KMeansSettings(C, seed=len(train))).prototypes
    found = {}
    for method in (*OTHERS, "panther"):
        module = build(method, prototypes)
        with torch.no_grad():
            x = torch.stack([module(bag).vector for bag in cohort.bags])
        for name, (scaling, options) in (SCALINGS if method == "panther" else {method: ("balanced", {})}).items():
            scaler = build_scaler(scaling, options)(x[train], module.columns())
            z = scaler(x).numpy()
            probe = fit_suitable(z[train], cohort.target.take(train), blocks=scaler.blocks(module.columns()))
            found[name] = score(cohort, test, probe.logits(z[test]))
        if method == "panther" and heads:
            for name, (scaling, options) in HEADS.items():
                scaler = build_scaler(scaling)(x[train], module.columns())
                shape = token_shape(scaler.columns(module.columns()))
                found[name] = score(cohort, test, structured(cohort, scaler(x), shape, options, train, test))
    return found


def structured(
    cohort: Cohort, z: Tensor, shape: tuple[int, ...], options: dict[str, bool], train: np.ndarray, test: np.ndarray
) -> np.ndarray:
    kind = "classification" if isinstance(cohort.target, Classes) else "survival"
    settings = usual_training(kind, network=False)
    task = fit_task(USUAL_LOSS[kind], cohort.target.take(train))
    head = build_head(f"paper-{kind}", shape, task.n_outputs, options, seed=1)
    source = ArraySource(z[train], task.encode(cohort.target.take(train)), settings.batch_size)
    fitted = fit(head, source, task, settings)
    rest = ArraySource(z[test], task.encode(cohort.target.take(test)), 64, shuffle=False)
    return predict_logits(fitted.model, rest, settings)[0].numpy()


def score(cohort: Cohort, test: np.ndarray, logits: np.ndarray) -> float:
    target = cohort.target.take(test)
    if isinstance(target, Classes):
        return binary_auroc(target.labels == 1, logits[:, 1] - logits[:, 0])
    return concordance(target.time, target.event, logits[:, 0])


def tell(found: list[Scores]) -> None:
    names = list(dict.fromkeys(key for scores in found for key in scores))
    candidates = list(next(iter(found[0].values())))
    mean = {key: {c: float(np.mean([s[key][c] for s in found if key in s])) for c in candidates} for key in names}
    kinds = list(dict.fromkeys(kind for kind, _ in names))
    for kind in kinds:
        rows = [[name, *(f"{mean[k, name][c]:.3f}" for c in candidates)] for k, name in names if k == kind]
        harness.table(f"{kind}: score on test patients", ["cohort", *candidates], rows)
    rows = []
    for c in candidates:
        regret = {
            k: [max(0, max(mean[key][r] for r in RIVALS) - mean[key][c]) for key in names if key[0] == k] for k in kinds
        }
        by_kind = [float(np.mean(values)) for values in regret.values()]
        scores = [np.mean([mean[key][c] for key in names if key[0] == k]) for k in kinds]
        largest = max(max(values) for values in regret.values())
        rows.append(
            [c, *(f"{v:.4f}" for v in by_kind), f"{np.mean(by_kind):.4f}", f"{largest:.3f}", f"{np.mean(scores):.3f}"]
        )
    harness.table("regret", ["candidate", *kinds, "mean", "largest", "mean score"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiles", type=Path)
    parser.add_argument("--drawn", type=Path)
    parser.add_argument("--look", choices=list(LOOKS), default="second")
    parser.add_argument("--heads", action="store_true", help="the structured head too")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--quick", action="store_true", help="one seed of each cohort")
    given = parser.parse_args()
    print(harness.machine("scikit-learn"))
    jobs = list(cohorts(given.tiles, given.drawn, given.look, given.quick))
    with ProcessPoolExecutor(given.workers, mp_context=get_context("spawn")) as pool:
        tell(list(pool.map(partial(judge, heads=given.heads), jobs)))


if __name__ == "__main__":
    main()
