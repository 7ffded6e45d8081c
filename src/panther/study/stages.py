"""How the jobs of a study are run, stage by stage. Jobs that read the same bags walk over them together, so that a bag is read as often
for a large grid as for a small one.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import closing
from functools import cache, partial
from pathlib import Path
from typing import Any

from panther.aggregators.embed import Embedder, embed_grid
from panther.engine import Work, map_slides, side_by_side
from panther.errors import InputError
from panther.prototypes import fit_many
from panther.prototypes.centre import add_sites
from panther.storage.prototypes import load_prototypes, save_prototypes
from panther.study.jobs import EmbeddingJob, GivenJob, JoinedJob, ModelJob, PrototypeJob, StudyJob, run_job

Failure = tuple[StudyJob, str]  # a job whose files cannot be made, and why

WRITERS = 2  # files that are written at a time: one waits for the disk while the other is copied


def run_stage(
    stage: str,
    jobs: Sequence[StudyJob],
    broken: set[Path],
    failures: dict[str, str],
    work: Work,
) -> set[Path]:
    """Run the jobs of one stage whose inputs exist and whose files do not; returns the paths that will never be."""
    lost = {job.path for job in jobs if broken & set(job.inputs)}
    for job, reason in STAGES[stage]([job for job in jobs if job.path not in lost], work):
        failures[f"{stage}: {job}"] = f"{job}: {reason}"
        lost.add(job.path)
    return lost


def _prototypes(jobs: Sequence[PrototypeJob], work: Work) -> Iterator[Failure]:
    """All K-means of an encoder from the same walks over its bags."""
    missing = [job for job in jobs if not job.done]
    sites = next((job.sites for job in missing if job.sites is not None), None)
    fitted = fit_many([(job.bags, job.settings) for job in missing], sites=sites, work=work) if missing else []
    for job, fit in zip(missing, fitted, strict=True):
        if isinstance(fit, InputError):
            yield job, str(fit)
        else:
            known = fit.prototypes
            if job.sites is not None:  # sites that are tested on and not learned from
                known, _ = add_sites(known, job.everyone, job.sites, work=work)
            save_prototypes(known, job.path)


def _embeddings(jobs: Sequence[EmbeddingJob], work: Work) -> Iterator[Failure]:
    """All embeddings of an encoder from one walk over its bags."""
    embedders: dict[str, Embedder] = {}
    load = cache(load_prototypes)  # once for all methods on them
    for job in (job for job in jobs if not job.done):
        try:
            block = job.block.load(load)
            embedders[job.path.name] = Embedder(block.basis, block.method.name, block.method.options)
        except InputError as error:
            yield job, str(error)
    walking = [job for job in jobs if job.path.name in embedders]
    if walking:
        grid = embed_grid(walking[0].bags, list(embedders.values()), work, jobs[0].path.parent)
        with closing(grid) as tables, ThreadPoolExecutor(WRITERS) as writers:
            written: deque[Future[None]] = deque()
            for job, table in zip(walking, tables, strict=True):
                if isinstance(table, InputError):
                    yield job, str(table)
                else:
                    written.append(writers.submit(job.write, table))
                if len(written) > WRITERS:
                    written.popleft().result()
            for one in written:
                one.result()


def _models(jobs: Sequence[ModelJob], work: Work) -> Iterator[Failure]:
    """Each by itself, side by side; where there is a GPU, it is for the networks."""
    missing = [job for job in jobs if not job.done]
    if work.device == "cpu":
        yield from _trained(missing, work)
        return
    yield from _trained([job for job in missing if job.recipe.supervised], work)
    yield from _trained([job for job in missing if not job.recipe.supervised], work.on_cpu())


def _trained(jobs: Sequence[ModelJob], work: Work) -> Iterator[Failure]:
    run = partial(run_job, device=work.device)
    for result in work.track(map_slides(run, jobs, work.executor), "models", len(jobs)):
        if result.reason is not None:
            yield jobs[result.index], result.reason


def _here(jobs: Sequence[GivenJob | JoinedJob], work: Work) -> Iterator[Failure]:
    """One after the other in this process: they only copy numbers."""
    for job in jobs:
        try:
            run_job(job)
        except InputError as error:
            yield job, str(error)


def _by_encoder(run: Callable[[Sequence[Any], Work], Iterator[Failure]]) -> Callable[..., Iterator[Failure]]:
    def each(jobs: Sequence[Any], work: Work) -> Iterator[Failure]:
        # on the CPU: a study's numbers are the same wherever it runs
        work = work.on_cpu()
        groups = [[job for job in jobs if job.encoder == one] for one in dict.fromkeys(job.encoder for job in jobs)]
        calls = [lambda group=group: list(run(group, work)) for group in groups]
        # workers have something to do while one encoder's K-means waits for its slowest bag
        many = work.executor is not None and len(calls) > 1
        for failures in side_by_side(calls) if many else (call() for call in calls):
            yield from failures

    return each


STAGES: dict[str, Callable[[Sequence[Any], Work], Iterator[Failure]]] = {
    "prototypes": _by_encoder(_prototypes),
    "embeddings": _by_encoder(_embeddings),
    "given vectors": _here,
    "joined embeddings": _here,
    "models": _models,
}
