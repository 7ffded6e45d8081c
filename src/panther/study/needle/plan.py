"""What a diagnosis stands on: embeddings that are made in the same walk as those of the study's rows, and shown nowhere."""

from dataclasses import replace

from panther.models.heads import PROBE
from panther.models.named import Named
from panther.study.file import Cell
from panther.study.jobs import StudyJob, cache_key
from panther.study.needle.job import DiagnosisJob
from panther.study.plan import CellJobs, Plan

PANTHER = Named(name="panther", options={"blocks": ["tail"]})
LARGEST = Named(name="max")


def diagnosis_jobs(plan: Plan) -> list[tuple[str, StudyJob]]:
    """Stage and job of all that the diagnoses of every encoder and fold need, in their order."""
    found: list[tuple[str, StudyJob]] = []
    for encoder in plan.study.features:
        for fold in range(len(plan.population.splits)):
            found += _jobs(plan, encoder, fold)
    return found


def _jobs(plan: Plan, encoder: str, fold: int) -> list[tuple[str, StudyJob]]:
    """Of all training patients, with the study's first number of prototypes and seed."""
    study = plan.study

    def jobs(method: Named, count: int) -> CellJobs:
        head, loss, seed = Named(name=PROBE), study.default_loss, study.seeds[0]
        cell = Cell(encoder=encoder, method=method, head=head, loss=loss, n_prototypes=count, train_size=1.0, seed=seed)
        return plan.jobs(cell, fold)

    mixtures, largest = jobs(PANTHER, study.n_prototypes[0]), jobs(LARGEST, 0)
    model, other = mixtures.model, largest.model
    assert model.embeddings is not None
    assert other.embeddings is not None
    train = model.parts.ids["train"]
    parts = replace(
        model.parts,
        ids={"train": train},
        targets={"train": model.parts.targets["train"]},
        patients={name: model.parts.patients[name] for name in train},
    )
    inputs = model.embeddings.name, other.embeddings.name, study.default_loss.name, study.seeds[0]
    path = plan.folder / "cache" / f"diagnosis-{cache_key('diagnosis', inputs, parts.signature())}.npz"
    job = DiagnosisJob(
        encoder,
        fold,
        parts,
        study.default_loss.name,
        study.seeds[0],
        model.embeddings,
        model.blocks[0],
        other.embeddings,
        path,
    )
    return [*mixtures.before, *largest.before, ("diagnosis", job)]
