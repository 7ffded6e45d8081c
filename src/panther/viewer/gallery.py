"""What prototypes look like over the whole cohort: from an atlas that is there, or found in the background while people look.

Slides are described one after the other in the worker processes (`explain.atlas.describe_slide`); what is known so far is shown at
any time, and kept in memory only.
"""

import logging
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from panther.engine import stream
from panther.errors import InputError
from panther.explain.atlas import AtlasJob, AtlasSettings, Kind, Pool, describe_slide, patients_of, summed_up
from panther.explain.atlas_files import to_dict
from panther.explain.shares import Proportions, as_proportions
from panther.storage.files import read_json
from panther.viewer.workbench import Workbench

KINDS: tuple[Kind, ...] = ("nearest", "borderline", "farthest")
EXEMPLARS = 12  # of each kind

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Findings:
    """What is known of a set's prototypes at one moment."""

    content: Mapping[str, Any]  # as in atlas.json; empty where nothing is known yet
    proportions: Proportions | None = None  # of slides
    patients: Sequence[str] = ()  # of those slides
    done: int = 0  # slides
    total: int = 0
    running: bool = False
    whole: bool = False  # nothing more will come
    can_look: bool = False  # an atlas is shown; the slides themselves would tell more
    notes: tuple[str, ...] = ()
    failures: Mapping[str, str] = field(default_factory=dict)


class Gallery:
    """Prototypes of one set, as the cohort shows them. Threads may share it."""

    def __init__(self, bench: Workbench, chosen: str | None) -> None:
        self._bench, self._prototypes = bench, bench.prototypes(chosen)
        self._settings = AtlasSettings(bench.settings, EXEMPLARS, kinds=KINDS)
        self._jobs = _jobs(bench)
        self._pool = Pool(len(self._prototypes), self._settings)
        self._failures: dict[str, str] = {}
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._problem = ""
        self._known: Findings | None = None  # for as many slides as are done
        self._atlas = _from_atlas(bench, self._prototypes.content_hash(), len(self._prototypes))

    def start(self, *, although: bool = False) -> None:
        """Begin to look at the slides, once; where there is an atlas, only ``although`` it is there."""
        with self._lock:
            if self._thread is None and (although or self._atlas is None):
                self._thread = threading.Thread(target=self._look, name="gallery", daemon=True)
                self._thread.start()

    def wait(self) -> None:
        """Until all slides were looked at."""
        if self._thread is not None:
            self._thread.join()

    def findings(self) -> Findings:
        """What is known now."""
        with self._lock:
            running = self._thread is not None and self._thread.is_alive()
            done, total = len(self._pool.slides) + len(self._failures), len(self._jobs)
            if self._atlas is not None and (self._thread is None or running):  # better than a part of the slides
                can_look = bool(self._jobs) and not running
                shown = done if running else 0
                total = total if running else 0
                return replace(self._atlas, done=shown, total=total, running=running, can_look=can_look)
            if self._known is None or self._known.done != done:
                self._known = self._summed_up(done, total)
            notes = (*self._known.notes, *([self._problem] if self._problem else []))
            return replace(self._known, running=running, whole=not running, notes=notes)

    def shares(self) -> tuple[Proportions | None, int, int, dict[str, str]]:
        """Pi of the slides that are done, how many that are and how many will be, and why some are not; nothing is summed up for it."""
        with self._lock:
            if self._atlas is not None:
                return self._atlas.proportions, 0, 0, {}
            running = self._thread is not None and self._thread.is_alive()
            done = len(self._pool.slides)
            patches = np.array([float(members.sum()) for members in self._pool.members])
            found = Proportions(list(self._pool.slides), np.stack(self._pool.weights), patches) if done else None
            done += len(self._failures)
            return found, done, len(self._jobs) if running else done, dict(self._failures)

    def _summed_up(self, done: int, total: int) -> Findings:
        if not self._pool.slides:
            return Findings({}, done=done, total=total, failures=dict(self._failures))
        atlas = summed_up(self._pool, self._prototypes, self._settings, (), dict(self._failures))
        pi = Proportions(list(atlas.slides), atlas.weights, atlas.members.sum(1).astype(float))
        content = to_dict(atlas)
        for row, one in zip(content["exemplars"], atlas.exemplars, strict=True):
            if one.place is not None and one.place.side is not None:
                row["place"] = {"x": one.place.x, "y": one.place.y, "side": one.place.side, "unit": one.place.unit}
        return Findings(content, pi, atlas.patients, done, total, notes=atlas.notes, failures=atlas.failures)

    def _look(self) -> None:
        describe = partial(describe_slide, prototypes=self._prototypes, settings=self._settings)
        safe, failures = self._safe()
        try:
            # few ahead: whoever searches meanwhile need not wait for the whole cohort
            for _, facts in stream(describe, safe, "", self._bench.long_work, failures, ahead=1):
                with self._lock:
                    self._pool.add(facts)
                    self._failures = dict(failures)
            with self._lock:
                self._failures = failures
        except Exception as error:
            self._problem = f"Not all slides could be looked at: {error}"
            if not isinstance(error, InputError):
                logger.exception("Looking at the prototypes ended early.")

    def _safe(self) -> tuple[list[AtlasJob], dict[str, str]]:
        """Slides whose files lie in the opened folders, and the reason for each of the others."""
        safe, refused = [], {}
        for job in self._jobs:
            try:
                self._bench.refuse_links(job.ref.files)
                safe.append(job)
            except InputError as error:
                refused[job.sample] = str(error)
        return safe, refused


def gallery_of(bench: Workbench, chosen: str | None) -> Gallery:
    """The gallery of a set of prototypes, looking already; all pages share it."""
    name = bench.set_name(chosen)
    version = bench.prototypes(name).content_hash()
    found: Gallery = bench.shared.get(("gallery", name), lambda: Gallery(bench, name), version)
    found.start()
    return found


def _jobs(bench: Workbench) -> list[AtlasJob]:
    with_features = [one for one in bench.contents.slides.values() if one.features is not None]
    patients = patients_in(bench, [one.name for one in with_features])
    return [AtlasJob(one.features, patients[one.name], one.image) for one in with_features if one.features is not None]


def patients_in(bench: Workbench, slides: Sequence[str]) -> dict[str, str]:
    """Patient of each slide; of one that the table does not name, the slide itself."""
    table = bench.contents.table
    if table is None or not table.who.patients_known:
        return patients_of(None, slides)[0]
    known = {name: one.patient for name, one in bench.contents.slides.items() if one.patient is not None}
    return {slide: known.get(slide, slide) for slide in slides}


def _from_atlas(bench: Workbench, prototypes_hash: str, count: int) -> Findings | None:
    """What an atlas of the same prototypes holds, where there is one."""
    for folder in bench.contents.artefacts.get("atlas", ()):
        try:
            content, pi = read_json(folder / "atlas.json"), as_proportions(folder / "pi.csv")
            if content["prototypes_hash"] != prototypes_hash or content["method"] != bench.settings.method:
                continue
            own = {**content, "exemplars": list(_exemplars(bench, content["exemplars"]))}
            if pi.pi.shape[1] != count or len(content["prototypes"]) != count or not own["exemplars"]:
                continue
            if any(np.shape(content[name]) != (count, count) for name in ("neighbours", "cooccurrence")):
                continue
        except (InputError, OSError, ValueError, KeyError, TypeError):
            continue  # damaged: the features are looked at instead
        patients = patients_in(bench, pi.samples)
        note = f"From the atlas in {_below(folder)}; it has no borderline and atypical patches."
        return Findings(own, pi, [patients[slide] for slide in pi.samples], notes=(note,), whole=True)
    return None


def _exemplars(bench: Workbench, rows: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Patches of slides that are here."""
    for row in rows:
        if row["slide"] in bench.contents.slides:
            yield {**row, "row": int(row["row"]), "prototype": int(row["prototype"]), "kind": str(row["kind"])}


def _below(folder: Path) -> str:
    return f"{folder.parent.name}/{folder.name}"
