"""Were heads and networks trained to an end? What to set in the study file where they were not."""

from dataclasses import replace

from panther.models.heads import PROBE
from panther.models.presets import preset, usual_preset
from panther.report.data import Run
from panther.report.html import number, plural, words_of_list

FEW_STEPS = 200  # of the optimiser; the paper's smallest cohort (TCGA-BLCA, 298 of 373 patients) takes 250
LONGER = "{epochs: 200, learning_rate: 0.001}"
OWN = "own"  # head of a network
ROUNDING = 1e-9


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
    worse = found[found["ci_high"] < chance - ROUNDING]
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
