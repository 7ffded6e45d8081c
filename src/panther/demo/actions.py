"""What the demo does itself between the product's commands: draw, write studies, give prototypes names from the truth."""

from collections.abc import Sequence
from pathlib import Path

from panther.demo.cohort import CohortSettings, write_cohort
from panther.demo.studies import write_study
from panther.demo.truth import Labelled, labelled, majority_names, pixel_agreement, write_labels, write_names
from panther.execution import Track, open_executor
from panther.types import Prototypes


def draw_cohort(folder: Path, settings: CohortSettings, track: Track) -> str:
    """Draw the slides, one process a core."""
    with open_executor(0) as executor:
        count = write_cohort(folder, settings, executor, track)
    return f"{count} slides in {folder / 'slides'}, their truth in {folder / 'truth'}, clinical table {folder / 'cohort.csv'}"


def study_file(folder: Path, name: str, features: Path, full: bool) -> str:
    """Write a study."""
    write_study(folder, name, features, folder / "splits", full)
    return ""


def name_prototypes(folder: Path, features: Path) -> str:
    """Names of the prototypes by the drawn tissue, and every patch's true tissue."""
    from panther.storage.prototypes import load_prototypes

    prototypes = load_prototypes(folder / "prototypes.safetensors")
    slides = look(folder, features, prototypes)
    write_labels(folder / "truth" / "patches.csv", slides)
    write_names(folder / "names.yaml", majority_names(slides, len(prototypes)))
    return (
        f"{folder / 'names.yaml'}: the names come from the masks; on real slides a pathologist gives them. Named on the other "
        f"slides, a slide's map agrees with {held_out_agreement(slides, len(prototypes)):.1%} of its tissue's pixels."
    )


def look(folder: Path, features: Path, prototypes: Prototypes) -> list[Labelled]:
    """All slides' patches with what was drawn under them."""
    from panther.aggregators import build

    module = build("panther", prototypes, {})
    return [labelled(file, folder / "truth", prototypes, module) for file in sorted(features.glob("*.h5"))]


def held_out_agreement(slides: Sequence[Labelled], count: int) -> float:
    """Part of the pixels whose prototype, named by the majority on all other slides, is what was drawn."""
    pairs = [
        pixel_agreement(slide, majority_names([other for other in slides if other is not slide], count))
        for slide in slides
    ]
    return sum(right for right, _ in pairs) / max(sum(total for _, total in pairs), 1)
