"""Checks of a study: leakage, chance, training, selection, size, site shift and failures."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import pandas as pd

from panther.evaluation.intervals import about_resamples, is_perfect
from panther.evaluation.shift import COLLAPSED
from panther.evaluation.verdicts import BALANCED, about_perfect, chance_in_resamples, patients_of_classes
from panther.models.heads import PROBE
from panther.models.settings import usual_training
from panther.report.data import Run, metric_name, outcome_of
from panther.report.figures import join_words, number, plural
from panther.report.material import Material
from panther.study.tables import one_class

INFLATED = 0.005  # rise of the chance level on resamples from which it is reported
ROUNDING = 1e-9
FEW_STEPS = 200  # of the optimiser; the paper's smallest cohort (TCGA-BLCA, 298 of 373 patients) takes 250
LONGER = "{epochs: 200, learning_rate: 0.001}"
NETWORK = "own"  # head of a network
WORSE = {  # head -> why its results may be worse than guessing
    "head": f"Probably a head was not trained to convergence; train longer, e.g. `training: {LONGER}`.",
    NETWORK: f"Probably a network was not trained to convergence; train longer, e.g. `mil_training: {LONGER}`.",
    PROBE: "A probe is fitted to convergence. Without a signal, scores below chance are common in cross-validation: a class that is by chance "
    "more frequent in training is less frequent in test.",
}


class Check(NamedTuple):
    """A check with its result, and an explanation or advice."""

    state: Literal["good", "mind", "bad"]
    sentence: str
    advice: str = ""


@dataclass(frozen=True)
class Overlap:
    """Patients and sites in both training and test of a fold."""

    fold: int
    patients: frozenset[str]  # in training (or validation) and in a test
    sites: int  # in training and in the test part
    seen: frozenset[str]  # test samples whose site is in training
    tested: frozenset[str]  # test samples whose site is known


def overlaps(run: Run) -> list[Overlap]:
    """Overlaps of all folds, from the samples of each part rather than the options of the split."""
    site = run.cohort["site"]
    result = []
    for fold, parts in enumerate(run.folds):
        trained = run.patients([*parts["train"], *parts.get("val", [])])
        tested = run.patients([s for name, ids in parts.items() if name.startswith("test") for s in ids])
        trained_at = set(site.loc[parts["train"]])
        with_site = frozenset(sample for sample in parts.get("test", []) if site.loc[sample] != "")
        seen = frozenset(sample for sample in with_site if site.loc[sample] in trained_at)
        result.append(Overlap(fold, frozenset(trained & tested), len(set(site.loc[list(seen)])), seen, with_site))
    return result


def checks(material: Material) -> list[Check]:
    """All checks that apply to the study, problems first."""
    results = [check for question in QUESTIONS for check in question(material)]
    return sorted(results, key=lambda check: ("bad", "mind", "good").index(check.state))


def _patients(material: Material) -> Iterator[Check]:
    shared = {patient for o in overlaps(material.run) for patient in o.patients}  # once each, in any number of folds
    if shared:
        text = f"Training and test of the same fold share {plural(len(shared), 'patient')}: the results are not valid."
        yield Check("bad", text)
    else:
        yield Check("good", "No patient is in training and test of the same fold (0 shared).")


def _sites(material: Material) -> Iterator[Check]:
    folds = overlaps(material.run)
    # samples tested in several folds count once
    tested, seen = {name for o in folds for name in o.tested}, {name for o in folds for name in o.seen}
    if not tested:
        text = "Sites are unknown: a model that recognises the site instead of the disease would go unnoticed."
        yield Check("mind", text)
    elif seen:
        advice = "Folds by site (`scheme: site-kfold`) show how well the result carries over to another hospital."
        text = f"{len(seen):,} of {len(tested):,} test samples come from sites that are also in training."
        yield Check("mind", text, advice)
    else:
        yield Check("good", "No site is in training and test of the same fold.")


def _shift(material: Material) -> Iterator[Check]:
    if material.shift is not None:
        text = material.shift.sentence.removeprefix("Warning: ")
        # capitalize() would put the names of samples in lower case
        yield Check("mind" if material.shift.doubtful else "good", text[:1].upper() + text[1:])


def _chance(material: Material) -> Iterator[Check]:
    run = material.run
    rows, chance = run.best(), run.chance(run.metric)
    to_beat = chance_in_resamples(run.metric, run.tested())
    if rows.empty or chance is None or to_beat is None:
        return
    best = rows.sort_values("ci_low", ascending=False).iloc[0]  # of ties the one with the highest lower limit
    guess = f"guessing gives {number(chance, 2)}"
    if is_perfect(best["mean"], run.metric):  # its interval is no evidence, its exact bound is
        text = f"{best['row']} made no error: {about_perfect(best)} ({guess})"
        guessing = best["exact_low"] <= chance
        advice = "" if guessing else "Look for leakage first: scanner, site, duplicates."
        yield Check("mind", f"{text}{': this could be guessing' if guessing else ''}.", advice)
        return
    if pd.isna(best["ci_low"]):
        return
    low = best["ci_low"] if pd.isna(best["selected_low"]) else best["selected_low"]
    inflated = f" ({number(to_beat)} on resamples)" if to_beat - chance >= INFLATED else ""
    text = f"lower limit of its {metric_name(run.metric)} {number(low)}; {guess}{inflated}"
    if low > to_beat + ROUNDING:
        yield Check("good", f"The best result is better than guessing ({text}).")
    else:
        yield Check("mind", f"Even the best result could be guessing ({text}).")


def _classes_of_folds(material: Material) -> Iterator[Check]:
    """Balanced accuracy where a test fold lacks a class, or where a resample is likely to lose one."""
    run = material.run
    if BALANCED not in run.study.shown:
        return
    patients = patients_of_classes(run.tested()).reindex(columns=run.classes, fill_value=0)
    lacking = [
        f"fold {int(str(fold)) + 1} has no {join_words([str(name) for name in counts.index[counts == 0]])}"
        for fold, counts in patients.iterrows()
        if (counts == 0).any()
    ]
    chance, in_resamples = run.chance(BALANCED), chance_in_resamples(BALANCED, run.tested())
    assert chance is not None
    assert in_resamples is not None
    if lacking:
        usual = number(1 / len(patients.columns), 2)
        advice = f"Balanced accuracy is the mean over the classes of a fold: guessing gives {number(chance, 2)}, not {usual}."
        yield Check("mind", f"Not every test fold has every class: {'; '.join(lacking)}.", advice)
    if run.study.bootstrap and in_resamples - chance >= INFLATED:
        fewest = int(patients.to_numpy()[patients.to_numpy() > 0].min())
        more = f"guessing gives more ({number(in_resamples)} instead of {number(chance)})"
        advice = f"Resamples that lose the class are scored on fewer classes, where {more}."
        text = f"Intervals of balanced accuracy are too high: a test fold has as few as {plural(fewest, 'patient')} of a class."
        yield Check("mind", text, advice)


def _resamples(material: Material) -> Iterator[Check]:
    sentences = [*one_class(material.run.predictions), about_resamples(material.run.study.bootstrap)]
    yield from (Check("mind", sentence) for sentence in sentences if sentence)


def _selection(material: Material) -> Iterator[Check]:
    rows = len(material.run.rows)
    if rows > 1:
        advice = "The best score is optimistic (above it is corrected for the selection); that of a method chosen beforehand is not."
        yield Check("mind", f"{rows} methods and heads were compared on the same test patients.", advice)


def _size(material: Material) -> Iterator[Check]:
    tests = [parts["test"] for parts in material.run.folds if parts.get("test")]
    if not tests:
        return
    outcome = outcome_of(material.run)
    fewest = min(outcome.scarcest(outcome.counts(ids)) for ids in tests)
    text = f"Every test fold has at least {min(map(len, tests))} samples and {fewest} {outcome.scarce}"
    if fewest >= outcome.few:
        yield Check("good", f"{text}.")
    else:
        yield Check("mind", f"{text}: results of single folds are mostly chance.")


def _failures(material: Material) -> Iterator[Check]:
    failures = material.run.record["failures"]
    if failures:
        yield Check("mind", f"{plural(len(failures), 'item')} failed; see Diagnostics.")
    else:
        yield Check("good", "Nothing failed: all samples were read, all models trained.")


def _collapse(material: Material) -> Iterator[Check]:
    mixtures = material.mixtures
    if mixtures is None:
        return
    for warning in mixtures.prototypes.diagnostics.get("warnings", []):
        text = re.sub(r"`(\w+)=`", r"`\1`", warning)  # Python's argument `sample=` is the setting `sample` of a study
        text = re.sub(r"\bC(\d+)\b", lambda match: material.fold_prototype(int(match[1])), text)
        yield Check("mind", f"Prototypes of the study (fold {mixtures.fold + 1}): {text[:1].lower()}{text[1:]}")
    single = 0 if mixtures.used is None else int((mixtures.used < COLLAPSED).sum())
    if single:
        text = f"{single:,} of {plural(len(mixtures.samples), 'sample')} use only one prototype: their mixtures carry little information."
        yield Check("mind", text)


def _few_steps(material: Material) -> Iterator[Check]:
    """Heads that were trained in few steps of the optimiser."""
    run = material.run
    heads = [head.title for head in run.study.heads if head.name != PROBE and head.title in set(run.summary["head"])]
    settings = replace(usual_training(run.kind, network=False), **run.study.training)
    samples = max(len(parts["train"]) for parts in run.folds)
    steps = settings.epochs * -(-samples // (settings.batch_size * settings.accumulate))
    if not heads or steps >= FEW_STEPS:
        return
    batches = f"{settings.batch_size} per batch, learning rate {settings.learning_rate:g}"
    how = f"{plural(settings.epochs, 'epoch')}, {plural(samples, 'sample')}, {batches}"
    text = f"Head {join_words(heads)}: trained in at most {plural(steps, 'step')}; the score may be limited by this."
    probes = any(head.name == PROBE for head in run.study.heads)
    convex = "the head `probe` beside it" if probes else "`heads: [probe]`"
    remedy = f"Use {convex}, which is fitted to convergence, or train longer, e.g. `training: {LONGER}` in the study file; see Curves for the loss."
    yield Check("mind", text, f"{how[:1].upper()}{how[1:]}. {remedy}")


def _below_chance(material: Material) -> Iterator[Check]:
    """Results that are significantly worse than guessing."""
    run = material.run
    table, chance = run.judged("test", run.metric), run.chance(run.metric)
    if chance is None or (worse := table[table["ci_high"] < chance - ROUNDING]).empty:
        return
    rows = (f"{r['row']} {number(r['mean'])}, at most {number(r['ci_high'])}" for _, r in worse.iterrows())
    kinds = {{PROBE: PROBE, NETWORK: NETWORK}.get(head, "head") for head in worse["head"]}
    text = f"Worse than guessing ({number(chance, 2)}): {'; '.join(rows)}. Differences from these rows are meaningless."
    yield Check("mind", text, " ".join(WORSE[kind] for kind in WORSE if kind in kinds))


QUESTIONS: tuple[Callable[[Material], Iterator[Check]], ...] = (
    _patients, _sites, _chance, _resamples, _few_steps, _below_chance, _classes_of_folds, _selection, _size, _shift, _collapse, _failures
)  # fmt: skip
