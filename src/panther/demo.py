"""`make demo`: this product's own commands on a small generated cohort, and how to look at what they made."""

import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np

SLIDES, DIM, TISSUES = 24, 64, 5


def generate(folder: Path, seed: int = 0) -> None:
    """Write features of synthetic slides, five tissues in known proportions, and a clinical table."""
    rng = np.random.default_rng(seed)
    folder.mkdir(parents=True, exist_ok=True)
    tissues = rng.normal(0, 2.0, (TISSUES, DIM))
    rows = []
    for number in range(SLIDES):
        subtype = number // 2 % 2  # two slides a patient
        proportions = rng.dirichlet(1.0 + 8.0 * (np.arange(TISSUES) == subtype) + 2.0 * (np.arange(TISSUES) > 1))
        count = int(rng.integers(300, 900))
        tissue = rng.choice(TISSUES, count, p=proportions)
        name = f"synthetic-{number:03d}"
        with h5py.File(folder / f"{name}.h5", "w") as file:
            features = file.create_dataset(
                "features", data=(tissues[tissue] + rng.normal(size=(count, DIM))).astype("f4")
            )
            features.attrs["encoder"] = "synthetic"
            side = int(np.ceil(np.sqrt(count)))
            grid = np.stack(np.divmod(np.arange(count), side), axis=1)[:, ::-1] * 512
            coords = file.create_dataset("coords", data=grid.astype("i8"))
            geometry = {
                "patch_size": 256,
                "patch_size_level0": 512,
                "level0_magnification": 40,
                "target_magnification": 20,
            }
            coords.attrs.update({**geometry, "overlap": 0, "name": name})
        rows.append(f"patient-{number // 2:02d},{name},{'AB'[subtype]},{'train' if number < 16 else 'test'}")
    (folder.parent / "cohort.csv").write_text("\n".join(["case_id,slide_id,subtype,split", *rows]) + "\n")


def main(folder: Path) -> None:
    """Generate the cohort and run the commands, printed so that they can be copied."""
    features, table = folder / "features", folder / "cohort.csv"
    prototypes, slides = folder / "prototypes.safetensors", folder / "slides.h5ad"
    print(f"Generating {SLIDES} synthetic slides ({TISSUES} tissues, {DIM} features a patch) in {features}")
    generate(features)
    _run("inspect", features)
    _run("prototypes", features, "-C", "8", "--table", table, "--split", "train", "-o", prototypes)
    _run("embed", features, "-p", prototypes, "-o", slides, "--table", table)
    _show(slides)
    print(f"\nMade {prototypes}, {slides}. The cohort is synthetic: it shows the pipeline, not biology.")
    print(
        "With your own features: panther inspect FEATURES; panther prototypes FEATURES -o protos.safetensors; panther embed ..."
    )


def _run(*arguments: object) -> None:
    words = [str(argument) for argument in arguments]
    print(f"\n$ panther {' '.join(words)}", flush=True)
    subprocess.run([sys.executable, "-m", "panther", *words], check=True)


def _show(slides: Path) -> None:
    """Mean mixture weights of the two subtypes: what the generated difference looks like in an embedding."""
    import anndata

    table = anndata.read_h5ad(slides)
    print("\nMean share of each prototype (pi) by subtype:")
    for subtype in ("A", "B"):
        mean = table.obsm["pi"][(table.obs["subtype"] == subtype).to_numpy()].mean(0)
        print(f"  {subtype}  " + "  ".join(f"C{c} {share:.2f}" for c, share in enumerate(mean)))


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "demo"))
