"""The paper's qualitative claims on the demo's synthetic cohorts, several of them, with intervals: which hold, which do not.

    python benchmarks/claims.py [--cohorts 3] [--patients 60] [--folder claims]

Every cohort is drawn anew (slides, stains, patients), cut and encoded by the product's own commands, divided into site-preserving folds, and
studied with `panther run`. A claim compares two cells on the same test patients: the mean over cohorts of the difference in balanced accuracy or
c-index, and a 95 % interval from resampling the patients of every cohort. Nothing is tuned. Killed? Run it again with the same folder.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import yaml
from sklearn.metrics import balanced_accuracy_score

import _harness as harness
from panther.evaluation.survival_metrics import concordance
from panther_demo.cohort import CohortSettings
from panther_demo.pipeline import FEATURES, Demo, steps
from panther_demo.steps import Runner, command

RESAMPLES = 1000
MARGIN = 0.02  # a claim of ">=" holds where less than this is lost
READOUTS = {"All": "all", "WA": "wa", "Top": "top", "Bottom": "bottom"}
METHODS = [
    *({"name": "panther", "readout": readout, "label": f"PANTHER {name}"} for name, readout in READOUTS.items()),
    *("ot", "h2t", "protocounts", "deepsets"),
]
TASKS = {
    "subtype": ({"label": "subtype"}, ["probe", "linear", "paper-classification"]),
    "survival": ({"survival": "os"}, ["probe", "linear", "paper-survival"]),
}
# (what the paper says, first cell, second cell): the first should be better, or no worse where it says >=
CLAIMS = [
    ("All > WA", ("PANTHER All", "probe"), ("PANTHER WA", "probe")),
    ("WA > DeepSets", ("PANTHER WA", "probe"), ("deepsets", "probe")),
    ("All > DeepSets", ("PANTHER All", "probe"), ("deepsets", "probe")),
    ("All > ProtoCounts", ("PANTHER All", "probe"), ("protocounts", "probe")),
    ("All > H2T", ("PANTHER All", "probe"), ("h2t", "probe")),
    ("All > OT", ("PANTHER All", "probe"), ("ot", "probe")),
    ("All > Top", ("PANTHER All", "probe"), ("PANTHER Top", "probe")),
    ("All > Bottom", ("PANTHER All", "probe"), ("PANTHER Bottom", "probe")),
    ("MLP >= linear, both trained as in the paper", ("PANTHER All", "paper"), ("PANTHER All", "linear")),
    ("MLP >= probe", ("PANTHER All", "paper"), ("PANTHER All", "probe")),
]


def study(folder: Path, task: str) -> Path:
    spec, heads = TASKS[task]
    path = folder / f"claims-{task}.yaml"
    content = {
        "name": task,
        "table": "cohort.csv",
        "features": {"lite0": str(FEATURES)},
        "task": spec,
        "splits": "splits",
        "methods": METHODS,
        "heads": heads,
        "bootstrap": 0,
    }
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    return path


def draw(folder: Path, settings: CohortSettings) -> Runner:
    """Draw and encode one cohort, as far as it is not done."""
    folder.mkdir(parents=True, exist_ok=True)
    runner = Runner(folder / ".done", print)
    runner.run([step for step in steps(Demo(folder, settings)) if step.name in ("draw", "slides", "splits")])
    return runner


def predictions(folder: Path, settings: CohortSettings, task: str) -> pd.DataFrame:
    """Draw, encode and study one cohort, as far as it is not done; test predictions of every cell."""
    runner = draw(folder, settings)
    run = folder / f"claims-{task}"
    runner.run([command(f"claims-{task}", [run / "table.md"], "run", study(folder, task), "-o", run)])
    table = pd.read_csv(run / "predictions.csv", dtype={"patient": str})
    table["head"] = table["head"].replace({"paper-classification": "paper", "paper-survival": "paper"})
    return table


def score(table: pd.DataFrame, task: str) -> float:
    """Balanced accuracy of all test patients, or the mean over folds of the c-index (risks of two models have no common unit)."""
    if task == "subtype":
        names = [name for name in table if name.startswith("probability_")]
        said = table[names].to_numpy().argmax(1)
        kinds = [name.removeprefix("probability_") for name in names]
        return float(balanced_accuracy_score(table["label"], [kinds[k] for k in said]))
    found = [
        concordance(fold["time"].to_numpy(), fold["event"].to_numpy(bool), fold["risk"].to_numpy())
        for _, fold in table.groupby("fold")
    ]
    return float(np.nanmean(found))


def scores(tables: list[pd.DataFrame], cell: tuple[str, str], task: str, drawn: list[np.ndarray] | None) -> list[float]:
    """Score of one cell in every cohort, on all patients or on those drawn (with repetition)."""
    found = []
    for number, table in enumerate(tables):
        own = table[(table["method"] == cell[0]) & (table["head"] == cell[1])]
        if drawn is not None:
            own = own.set_index("patient").loc[drawn[number]]
        found.append(score(own, task))
    return found


def verdict(low: float, high: float, weak: bool) -> str:
    if low > 0 or (weak and low > -MARGIN):
        return "holds"
    return "does not hold" if high < 0 else "undecided"


def judge(tables: list[pd.DataFrame], task: str) -> None:
    rng = np.random.default_rng(0)
    patients = [np.sort(table["patient"].unique()) for table in tables]
    draws = [[rng.choice(p, len(p)) for p in patients] for _ in range(RESAMPLES)]
    cells = sorted({(m, h) for table in tables for m, h in zip(table["method"], table["head"], strict=True)})
    alone = {cell: scores(tables, cell, task, None) for cell in cells}
    wanted = sorted({cell for _, *pair in CLAIMS for cell in pair})
    drawn = {cell: np.array([np.mean(scores(tables, cell, task, draw)) for draw in draws]) for cell in wanted}
    measure = {"subtype": "balanced accuracy", "survival": "c-index"}[task]
    rows = [[m, h, f"{np.mean(v):.3f}", " ".join(f"{x:.2f}" for x in v)] for (m, h), v in alone.items()]
    harness.table(f"{task}: {measure} on test patients", ["method", "head", "mean", "each cohort"], rows)
    rows = []
    for said, first, second in CLAIMS:
        low, high = np.nanquantile(drawn[first] - drawn[second], [0.025, 0.975])
        mean = np.mean(alone[first]) - np.mean(alone[second])
        rows.append([said, f"{mean:+.3f}", f"{low:+.3f} to {high:+.3f}", verdict(low, high, ">=" in said)])
    harness.table(f"{task}: claims", ["claim", "difference", "95 % interval", "verdict"], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cohorts", type=int, default=3)
    parser.add_argument("--patients", type=int, default=60)
    parser.add_argument("--folder", type=Path, default=Path("claims"))
    parser.add_argument("--draw-only", action="store_true", help="draw and encode the cohorts, study nothing")
    arguments = parser.parse_args()
    if arguments.draw_only:
        for seed in range(1, arguments.cohorts + 1):
            draw(arguments.folder / f"cohort-{seed}", CohortSettings(arguments.patients, seed=seed))
        return
    print(harness.machine("scikit-learn"))
    for task in TASKS:
        found = [
            predictions(arguments.folder / f"cohort-{seed}", CohortSettings(arguments.patients, seed=seed), task)
            for seed in range(1, arguments.cohorts + 1)  # 0 is the demo's own, which was looked at while it was made
        ]
        print(f"\n{arguments.cohorts} synthetic cohorts of {arguments.patients} patients, embedded encoder, C = 16.")
        judge(found, task)


if __name__ == "__main__":
    main()
