"""What the demo does itself between the product's commands: draw, write studies, give prototypes names from the truth."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

from panther.engine import Track, open_work
from panther.store import atomic_write
from panther.types import Prototypes
from panther.version import __version__
from panther_demo.cohort import CohortSettings, write_cohort
from panther_demo.studies import write_study
from panther_demo.truth import Labelled, agreement, held_out_table, labelled, majority_names, write_labels, write_names


def draw_cohort(folder: Path, settings: CohortSettings, track: Track) -> str:
    """Draw the slides, one process per core; what was made of another cohort in this folder goes first."""
    _forget_another(folder, settings)
    with open_work(track=track) as work:
        count = write_cohort(folder, settings, work)
    return f"{count} slides in {folder / 'slides'}, their truth in {folder / 'truth'}, clinical table {folder / 'cohort.csv'}"


def _forget_another(folder: Path, settings: CohortSettings) -> None:
    """Remove slides, truth and features of another cohort: commands take whole folders, and would mix the two."""
    note = folder / "truth" / "settings.json"
    mine = json.dumps([__version__, asdict(settings)])
    if note.exists() and note.read_text(encoding="utf-8") != mine:
        for name in ("slides", "job", "truth"):
            shutil.rmtree(folder / name, ignore_errors=True)
    with atomic_write(note) as temporary:
        temporary.write_text(mine, encoding="utf-8")


def study_file(folder: Path, name: str, features: Path, full: bool) -> str:
    """Write a study."""
    write_study(folder, name, features, folder / "splits", full)
    return ""


def name_prototypes(folder: Path, features: Path) -> str:
    """Names of the prototypes by the drawn tissue, and every patch's true tissue."""
    from panther.explain.concordance.agreement import adjusted_rand
    from panther.storage.prototypes import load_prototypes

    prototypes = load_prototypes(folder / "prototypes.safetensors")
    slides = look(folder, features, prototypes)
    write_labels(folder / "truth" / "patches.csv", slides)
    write_names(folder / "names.yaml", majority_names(slides, len(prototypes)))
    pixels = held_out_table(slides, len(prototypes))
    purest = sum(slide.counts[:, 1:].max(1).sum() for slide in slides) / pixels.sum()
    return (
        f"{folder / 'names.yaml'}: the names come from the masks; on real slides a pathologist gives them. Named on the other "
        f"slides, a slide's map agrees with {agreement(pixels):.1%} of its tissue's pixels (patches that lie on two tissues "
        f"allow {purest:.1%}), adjusted Rand index {adjusted_rand(pixels):.2f}."
    )


def look(folder: Path, features: Path, prototypes: Prototypes) -> list[Labelled]:
    """All slides' patches with what was drawn under them."""
    from panther.aggregators import build

    module = build("panther", prototypes, {})
    return [labelled(file, folder / "truth", prototypes, module) for file in sorted(features.glob("*.h5"))]
