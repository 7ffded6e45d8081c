"""A small real study: subtypes, one of them called as no subtype should be, tested on another cohort too."""

from pathlib import Path

from report.studies import EVIL, run
from study.generated import generate

QUICK = {"methods": ["panther", "deepsets"], "heads": ["probe"], "bootstrap": 10}


def write_study(folder: Path, other: Path) -> Path:
    """Write features and a table into ``folder``, those of the other cohort into ``other``; returns the folder of the run."""
    generate(folder, patients=24, patches=16)
    generate(other, patients=12, patches=16, seed=9)
    for path in list((other / "features").glob("*.npy")):
        path.rename(path.with_name(f"X{path.name}"))
    for place in (folder, other):
        text = (place / "table.csv").read_text().replace(",high,", f",{EVIL},")
        (place / "table.csv").write_text(text.replace("P0", "XP0") if place == other else text)
    external = {"lab": {"table": str(other / "table.csv"), "features": {"npy": str(other / "features")}}}
    return run(folder, task={"label": "subtype"}, seeds=[1, 2], external=external, **QUICK)
