"""What a reader must know before trusting a study: warnings about data, chance and training."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from panther.evaluation.intervals import about_resamples, is_perfect
from panther.evaluation.shift import COLLAPSED
from panther.evaluation.verdicts import (
    BALANCED,
    about_perfect,
    about_selection,
    chance_in_resamples,
    patients_of_classes,
)
from panther.models.heads import PROBE
from panther.models.settings import preset, usual_preset
from panther.report.data import Run, metric_name
from panther.report.fold import as_settings
from panther.report.html import Html, number, plural, tag, words, words_of_list
from panther.report.material import Material
from panther.report.outcomes import outcome_of
from panther.study.tables import one_class

State = Literal["good", "mind", "bad"]
FLATTERED = 0.005  # of the chance level, from which on it is reported
ROUNDING = 1e-9
WORDS: dict[State, str] = {"good": "Good", "mind": "Mind", "bad": "Problem"}
FEW_STEPS = 200  # of the optimiser; the paper's smallest cohort (TCGA-BLCA, 298 of 373 patients) takes 250
LONGER = "{epochs: 200, learning_rate: 0.001}"
OWN = "own"  # head of a network
LOSS_ROUNDING = 1e-9


@dataclass(frozen=True)
class Check:
    """One answer."""

    state: State
    sentence: str


@dataclass(frozen=True)
class Overlap:
    """Patients and sites on both sides of a fold."""

    fold: int
    patients: frozenset[str]  # in training (or validation) and in a test
    sites: int  # in training and in the study's own test
    seen: frozenset[str]  # test samples whose site training has seen
    tested: frozenset[str]  # test samples whose site is known


def overlaps(run: Run) -> list[Overlap]:
    """Counted from the samples that were in each part, not from the options of the split."""
    site = run.cohort["site"]
    found = []
    for fold, parts in enumerate(run.folds):
        known = run.patients([*parts["train"], *parts.get("val", [])])
        tested = run.patients([s for name, ids in parts.items() if name.startswith("test") for s in ids])
        own = parts.get("test", [])
        trained_at = set(site.loc[parts["train"]]) - {""}
        tested_at = set(site.loc[own]) - {""}
        with_site = frozenset(sample for sample in own if site.loc[sample] != "")
        seen = frozenset(sample for sample in with_site if site.loc[sample] in trained_at)
        found.append(Overlap(fold, frozenset(known & tested), len(trained_at & tested_at), seen, with_site))
    return found


def checks(material: Material) -> list[Check]:
    """All that apply, the grave ones first."""
    found = [check for ask in QUESTIONS for check in ask(material)]
    return sorted(found, key=lambda check: ("bad", "mind", "good").index(check.state))


def checklist(found: list[Check]) -> Html:
    """As a list; the state is a word, not only a colour."""
    items = [tag("li", tag("strong", WORDS[c.state]), " ", words(c.sentence), class_=c.state) for c in found]
    return tag("ul", items, class_="checks")


def _patients(material: Material) -> Iterator[Check]:
    shared = {patient for o in overlaps(material.run) for patient in o.patients}  # of several folds, each counts once
    if shared:
        text = f"Training and test of the same fold share {plural(len(shared), 'patient')}: the results are not valid."
        yield Check("bad", text)
    else:
        yield Check(
            "good", "No patient is in training and test of the same fold (0 shared, counted from the lists of samples)."
        )


def _sites(material: Material) -> Iterator[Check]:
    found = overlaps(material.run)
    # who is tested in several folds counts once
    tested, seen = {name for o in found for name in o.tested}, {name for o in found for name in o.seen}
    if not tested:
        yield Check(
            "mind", "Sites are not known, so it cannot be told whether hospitals rather than disease were learned."
        )
    elif seen:
        yield Check(
            "mind",
            f"{len(seen):,} of {len(tested):,} test samples come from sites that training has seen. Folds by site (`scheme: site-kfold`) would tell "
            "how well this carries over to another hospital.",
        )
    else:
        yield Check(
            "good",
            "No site is in training and test of the same fold: every test is on hospitals the model has not seen.",
        )


def _shift(material: Material) -> Iterator[Check]:
    if material.shift is not None:
        text = material.shift.sentence.removeprefix("Warning: ")
        # not capitalize(): that makes the names of samples small
        yield Check("mind" if material.shift.doubtful else "good", text[:1].upper() + text[1:])


def _chance(material: Material) -> Iterator[Check]:
    run = material.run
    rows, chance = run.best(), run.chance(run.metric)
    to_beat = chance_in_resamples(run.metric, run.tested())
    if rows.empty or chance is None or to_beat is None:
        return
    best = rows.sort_values("ci_low", ascending=False).iloc[0]  # of those that tie, the surest
    if is_perfect(best["mean"], run.metric):
        yield _perfect(best, chance)
        return
    if pd.isna(best["ci_low"]):
        return
    selection, low = about_selection(best), best["ci_low"] if pd.isna(best["selected_low"]) else best["selected_low"]
    limits = selection or f"95 % interval {number(best['ci_low'])} to {number(best['ci_high'])}"
    text = f"{best['row']}: {metric_name(run.metric)} {number(best['mean'])}, {limits}"
    guess = f"guessing gives {number(chance, 2)}" + _on_resamples(chance, to_beat)
    if low > to_beat + ROUNDING:
        yield Check("good", f"The best result is better than guessing ({text}; {guess}).")
    else:
        yield Check("mind", f"Even the best result could be guessing ({text}; {guess}).")


def _on_resamples(chance: float, in_resamples: float) -> str:
    return f" ({number(in_resamples)} on resamples)" if in_resamples - chance >= FLATTERED else ""


def _resamples(material: Material) -> Iterator[Check]:
    text = about_resamples(material.run.study.bootstrap)
    if text:
        yield Check("mind", text)


def _classes_of_folds(material: Material) -> Iterator[Check]:
    """Balanced accuracy is another thing where a test fold lacks a class, and its interval where a class is about to be lost."""
    run = material.run
    if BALANCED not in run.study.shown:
        return
    patients = patients_of_classes(run.tested()).reindex(columns=run.classes, fill_value=0)
    lacking = [
        f"fold {int(str(fold)) + 1} has no {words_of_list([str(name) for name in own.index[own == 0]])}"
        for fold, own in patients.iterrows()
        if (own == 0).any()
    ]
    chance, in_resamples = run.chance(BALANCED), chance_in_resamples(BALANCED, run.tested())
    assert chance is not None
    assert in_resamples is not None
    if lacking:
        yield Check(
            "mind",
            f"Not every test fold has every class: {'; '.join(lacking)}. Balanced accuracy is the mean over the classes that a fold has, so guessing "
            f"gives {number(chance, 2)} here, not {number(1 / len(patients.columns), 2)}.",
        )
    if run.study.bootstrap and in_resamples - chance >= FLATTERED:
        fewest = int(patients.to_numpy()[patients.to_numpy() > 0].min())
        yield Check(
            "mind",
            f"Intervals of balanced accuracy reach too high: a test fold has as few as {plural(fewest, 'patient')} of a class, and a resample that "
            f"loses them is scored on fewer classes, where guessing gives more ({number(in_resamples)} on resamples, {number(chance)} on everybody).",
        )


def _training(material: Material) -> Iterator[Check]:
    for sentence in (*one_class(material.run.predictions), below_chance(material.run), few_steps(material.run)):
        if sentence:
            yield Check("mind", sentence)


def _perfect(best: pd.Series, chance: float) -> Check:
    """A perfect score is no good news by itself: it is judged by its exact bound, and leakage is the first thing to look for."""
    text = f"{best['row']} made no error: {about_perfect(best)} (guessing gives {number(chance, 2)})"
    if best["exact_low"] <= chance:
        return Check("mind", f"{text}: even this could be guessing.")
    return Check("mind", f"{text}. Look first for what could give the answer away: scanner, site, duplicates.")


def _picked(material: Material) -> Iterator[Check]:
    if len(material.run.rows) > 1:
        yield Check(
            "mind",
            f"{len(material.run.rows)} combinations of method and head were compared on the same test patients, "
            "so the number of the best one is flattered (in short: corrected for the selection); that of a method chosen beforehand is not.",
        )


def _size(material: Material) -> Iterator[Check]:
    run = material.run
    smallest = min((len(ids) for parts in run.folds for name, ids in parts.items() if name == "test"), default=0)
    if not smallest:
        return
    outcome = outcome_of(run)
    fewest = min(outcome.scarcest(parts["test"]) for parts in run.folds if "test" in parts)
    state: State = "good" if fewest >= outcome.few else "mind"
    more = "" if fewest >= outcome.few else ": numbers of single folds are mostly chance"
    yield Check(
        state, f"The smallest test fold has {smallest} samples, and the scarcest has {fewest} {outcome.scarce}{more}."
    )


def _failures(material: Material) -> Iterator[Check]:
    failures = material.run.record["failures"]
    if failures:
        yield Check(
            "mind", f"{plural(len(failures), 'item')} failed and were left out; the tab Diagnostics lists them."
        )
    else:
        yield Check("good", "Nothing failed: every sample was read, and no training broke off.")


def _collapse(material: Material) -> Iterator[Check]:
    mixtures = material.mixtures
    if mixtures is None:
        return
    for sentence in mixtures.prototypes.diagnostics.get("warnings", []):
        text = (
            f"The study's own prototypes (fold {mixtures.fold + 1}): {sentence[:1].lower()}{as_settings(sentence[1:])}"
        )
        yield Check("mind", text)
    used = mixtures.used
    if used is not None:
        alone = int((used < COLLAPSED).sum())
        if alone:
            yield Check(
                "mind",
                f"{plural(alone, 'sample')} of {len(used):,} lie in one prototype only: their mixtures say little.",
            )


QUESTIONS: tuple[Callable[[Material], Iterator[Check]], ...] = (
    _patients, _sites, _chance, _training, _classes_of_folds, _resamples, _picked, _size, _shift, _collapse, _failures,
)  # fmt: skip


def few_steps(run: Run) -> str:
    """Sentence on heads that took hardly a step; empty where they took enough, or none is trained by steps."""
    heads = [head.title for head in run.study.heads if head.name != PROBE]
    heads = [name for name in heads if name in set(run.summary["head"])]
    settings = replace(preset(usual_preset(run.kind, network=False)).train, **run.study.training)
    samples = max(len(parts["train"]) for parts in run.folds)
    steps = settings.epochs * -(-samples // (settings.batch_size * settings.accumulate))
    if not heads or steps >= FEW_STEPS:
        return ""
    several = len(heads) > 1
    return (
        f"The head{'s' if several else ''} {words_of_list(heads)} {'were' if several else 'was'} trained in {plural(steps, 'step')} at most "
        f"({plural(settings.epochs, 'epoch')} over {plural(samples, 'sample')}, {settings.batch_size} per batch, learning rate "
        f"{settings.learning_rate:g}): so few may leave a head near where it started, and then its score says little of the method. "
        f"{_instead(run)} the tab Curves shows whether the loss falls."
    )


def below_chance(run: Run) -> str:
    """Sentence on results that are surely worse than guessing, which say nothing of a method; empty where there are none."""
    chance = run.chance(run.metric)
    if chance is None:
        return ""
    found = run.judged("test", run.metric)
    worse = found[found["ci_high"] < chance - LOSS_ROUNDING]
    if worse.empty:
        return ""
    named = "; ".join(
        f"{row['row']} {number(row['mean'])}, at most {number(row['ci_high'])}" for _, row in worse.iterrows()
    )
    return (
        f"Worse than guessing, which gives {number(chance, 2)}: {named}. That is no property of a method, and differences from it say nothing. "
        f"{' '.join(_causes(run, set(worse['head'])))}"
    )


def _causes(run: Run, heads: set[str]) -> list[str]:
    """What is most likely behind it, and what to do."""
    found = []
    if heads - {OWN, PROBE}:
        found.append(f"Most likely a head was not trained to an end. {_instead(run)} its loss is in the tab Curves.")
    if OWN in heads:
        found.append(
            f"Most likely a network was not trained to an end: train it longer, e.g. `mil_training: {LONGER}` in the study file."
        )
    if PROBE in heads:
        found.append(
            "A probe is fitted to its end, so more training would not help. Where there is nothing to learn this is common: what the training "
            "patients of a fold have more of by chance, its test patients have less of, which leads it the wrong way. To be better than that is "
            "no merit."
        )
    return found


def _instead(run: Run) -> str:
    """What to write into the study file."""
    probes = any(head.name == PROBE for head in run.study.heads)
    convex = "the head `probe` beside it" if probes else "`heads: [probe]` in the study file"
    return f"Take {convex}, which is fitted to its end without epochs, or train longer, e.g. `training: {LONGER}` in the study file;"
