"""Heads that were hardly trained: the report says so, and what to write into the study file."""

from dataclasses import replace

from panther.report.checks import below_chance, checks, few_steps
from panther.report.material import gather


def test_a_head_that_took_few_steps_is_told_with_what_to_write_into_the_study_file(classes):
    material = gather(classes)
    run = material.run
    (said,) = [check for check in checks(material) if "trained in at most" in check.sentence]
    assert said.state == "mind"
    assert "Head linear: trained in at most 2 steps (2 epochs, 32 samples, 32 per batch" in said.sentence
    assert "`training: {epochs: 200, learning_rate: 0.001}` in the study file" in said.advice
    assert "the head `probe` beside it" in said.advice
    for training in ({"epochs": 200}, {"epochs": 100, "batch_size": 8}):
        longer = replace(run, study=run.study.model_copy(update={"training": training}))
        assert not few_steps(longer)
    summary = run.summary.copy()
    summary.loc[(summary["head"] == "linear") & (summary["metric"] == run.metric), "ci_high"] = 0.38
    worse = below_chance(replace(run, summary=summary))
    assert worse is not None
    assert "`training: {epochs: 200, learning_rate: 0.001}` in the study file" in worse.advice
    assert "A probe" not in worse.advice
