"""Artefacts of a small cohort with every method, as hashes: what a change of the code left as it was.

python benchmarks/frozen.py > before.json                # on one commit
python benchmarks/frozen.py --compare before.json        # on the next: names of what differs, and by how much
"""

import argparse
import hashlib
import inspect
import json
import tempfile
import warnings
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pandas as pd

import panther

METHODS = ("panther", "ot", "h2t", "protocounts", "deepsets")


def main() -> None:
    """Print the hashes, or compare them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--compare", type=Path)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        now = artefacts(Path(folder))
    if chosen.compare is None:
        print(json.dumps(now, indent=1))
        return
    before = json.loads(chosen.compare.read_text())
    for name in sorted({*before, *now}):
        if before.get(name) != now.get(name):
            print(f"{name}: {before.get(name)} -> {now.get(name)}")
    print(f"{sum(before.get(name) == now[name] for name in now)} of {len(now)} equal")


def artefacts(folder: Path) -> dict[str, Any]:
    """Hashes of arrays and texts, by their names."""
    features, table = cohort(folder)
    prototypes = panther.fit_prototypes(features, n_prototypes=4, seed=3)
    found: dict[str, Any] = {"prototypes": digest(prototypes.centroids, prototypes.within_variance)}
    for method in METHODS:
        embedded = panther.embed_cohort(features, prototypes, method=method)
        found[f"embeddings of {method}"] = digest(embedded.vectors)
    for preset in ("published-code", "calibrated"):
        embedded = panther.embed_cohort(features, prototypes, preset=preset, steps=3)
        found[f"embeddings of panther, {preset}"] = digest(embedded.vectors)
    found["map"] = map_of(features / "S00.h5", prototypes, folder / "map")
    for task, keys in tasks().items():
        found |= {f"{task}: {name}": value for name, value in study(folder, features, table, task, keys).items()}
    found["splits"] = [sorted(split.train) for split in splits(table)]
    found |= {f"signature of {name}": signature(name) for name in panther.__all__}
    return found


def cohort(folder: Path) -> tuple[Path, Path]:
    """40 slides of 12 features with coordinates, and their table."""
    rng = np.random.default_rng(0)
    features = folder / "features"
    features.mkdir()
    xy = np.array([[256 * (k % 12), 256 * (k // 12)] for k in range(90)])
    rows = []
    for number in range(40):
        name, label = f"S{number:02d}", number % 2
        x = rng.normal(size=(90, 12)) + 0.4 * label * (np.arange(90) < 30)[:, None]
        with h5py.File(features / f"{name}.h5", "w") as file:
            file.create_dataset("features", data=x.astype("float32")).attrs["encoder"] = "uni"
            file.create_dataset("coords", data=xy).attrs.update(
                patch_size=256, patch_size_level0=256, level0_magnification=20, target_magnification=20, overlap=0, name=name,
                level0_width=3072, level0_height=2048,
            )  # fmt: skip
        site = "ABCD"[number // 2 % 4]
        days = float(rng.exponential(900 - 400 * label) + 30)
        rows.append([name, name, "ab"[label], site, days, int(rng.random() < 0.3), float(rng.normal(60, 9))])
    columns = ["slide_id", "case_id", "subtype", "tissue_source_site", "dss_survival_days", "dss_censorship", "age"]
    pd.DataFrame(rows, columns=columns).to_csv(folder / "table.csv", index=False)
    return features, folder / "table.csv"


def tasks() -> dict[str, dict[str, Any]]:
    """Keys of two studies."""
    return {
        "subtyping": {"task": {"label": "subtype"}, "heads": ["probe", "linear"], "methods": [*METHODS, "abmil"]},
        "survival": {"task": {"survival": "dss"}, "heads": ["probe"], "methods": ["panther", "ot"]},
    }


def study(folder: Path, features: Path, table: Path, task: str, keys: dict[str, Any]) -> dict[str, str]:
    """Numbers of a study with two folds."""
    training = {"training": {"epochs": 3}, "mil_training": {"epochs": 2, "accumulate": 4}}
    content = {
        "name": task,
        "table": str(table),
        "features": {"uni": str(features)},
        "n_prototypes": [3],
        **keys,
        **training,
    }
    results = panther.run_study({**content, "splits": {"k": 2}, "bootstrap": 50}, folder / task)
    metrics = results.metrics.select_dtypes("number").to_numpy()
    predictions = results.predictions.select_dtypes("number").to_numpy()
    return {"metrics": digest(metrics), "predictions": digest(predictions)}


def splits(table: Path) -> list[Any]:
    """Site-preserving folds."""
    return list(panther.make_splits(panther.load_cohort(table, label="subtype"), scheme="site-kfold", k=2))


def map_of(features: Path, prototypes: Any, folder: Path) -> str:
    """GeoJSON and CSV of a map."""
    panther.make_map(features, prototypes, output=folder, formats=["geojson", "csv"])
    texts = [path.read_bytes() for path in sorted(folder.rglob("*")) if path.suffix in (".geojson", ".csv")]
    return hashlib.sha256(b"".join(texts)).hexdigest()[:16]


def signature(name: str) -> str:
    """Parameters of a public name."""
    value = getattr(panther, name)
    try:
        return str(list(inspect.signature(value).parameters)) if callable(value) else type(value).__name__
    except ValueError:
        return type(value).__name__


def digest(*arrays: Any) -> str:
    """Hash of the numbers of arrays."""
    parts = [np.ascontiguousarray(np.asarray(array, dtype=np.float64)).tobytes() for array in arrays]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


if __name__ == "__main__":
    main()
