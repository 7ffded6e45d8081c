"""Retrieval in a study: test slides are queries, training slides are searched, in every fold."""

from collections.abc import Iterator

import numpy as np
import pandas as pd
import torch

from panther.aggregators import aggregators
from panther.cohort.targets import Classes
from panther.search.neighbours import groups, searchable
from panther.search.retrieval import Queries, score, summarise
from panther.storage.embeddings import Embeddings
from panther.study.jobs import load_embeddings
from panther.study.tables import RETRIEVAL
from panther.study.training import StudyRun, Trained

KEY = ("encoder", "method", "n_prototypes")  # of a representation


def judge_retrieval(run: StudyRun) -> dict[str, pd.DataFrame]:
    """Tables `retrieval` and `retrieval_comparisons` of every representation; none without the key `retrieval`.

    Of several training sizes and seeds the first is evaluated. The reference method is compared on the angle between vectors.
    """
    at = run.study.neighbours
    if not at:
        return {}
    population, target = run.population, run.population.target
    assert isinstance(target, Classes)
    parts = list(dict.fromkeys(part for split in population.splits for part in split.test))
    tables: dict[str, list[pd.DataFrame]] = {name: [] for name in RETRIEVAL}
    for part in parts:
        by_fold: dict[str, list[Queries]] = {}  # of every representation; those of the reference first
        for title, fold, embeddings in _representations(run):
            split, embedded = population.splits[fold], set(embeddings.samples)
            sides = split.test.get(part, ()), (*split.train, *split.val)  # queries, and slides that are searched
            names = [[name for name in side if name in embedded] for side in sides]
            if not all(names):
                continue
            queries, known = map(embeddings.take, names)
            rows = [population.rows(side.samples) for side in (queries, known)]
            labels = [target.labels[side] for side in rows]
            patients = [[population.patients[row] for row in side] for side in rows]
            apart = [groups(*patients)]
            for on in ("cosine", *(("pi", "mixture") if embeddings.mixtures else ())):
                near = searchable(known, on).nearest(searchable(queries, on).rows[:].double().numpy(), max(at), apart)
                # an external slide is a query in every fold, each time against other training slides
                ids = [f"{fold}:{name}" for name in queries.samples]
                one = score(near, (ids, labels[0], np.array(patients[0])), labels[1], apart, at)
                by_fold.setdefault(f"{title} on {on}", []).append(one)
        judged = {name: Queries.joined(folds) for name, folds in by_fold.items()}
        judged = {name: one for name, one in judged.items() if len(one.ids)}
        if judged:
            for name, table in zip(RETRIEVAL, summarise(judged, target.names, run.study.bootstrap), strict=True):
                tables[name].append(table.assign(part=part))
    return {name: pd.concat(some, ignore_index=True) for name, some in tables.items() if some}


def _representations(run: StudyRun) -> Iterator[tuple[str, int, Embeddings]]:
    """Every matrix of embeddings once, with its title and fold."""
    chosen: dict[tuple[object, ...], Trained] = {}
    first = run.trained[0].cell
    for trained in run.trained:
        columns = trained.cell.columns()
        if trained.embeddings is None or trained.cell.seed != first.seed or trained.cell.train_size != first.train_size:
            continue
        chosen.setdefault((*(columns[name] for name in KEY), trained.fold), trained)
    # 0 prototypes: it has none
    several = {name: len({key[at] for key in chosen} - {0}) > 1 for at, name in enumerate(KEY)}
    reference = run.study.reference_row
    for key, trained in sorted(
        chosen.items(), key=lambda item: item[0][1] != reference
    ):  # stable: the others as they are
        assert trained.embeddings is not None
        encoder, method, count, _ = key
        more = [f"encoder {encoder}"] if several["encoder"] else []
        more += [f"C {count}"] if several["n_prototypes"] and count else []
        matrix, samples = load_embeddings(trained.embeddings)
        rows = torch.from_numpy(np.array(matrix))
        named = trained.cell.method
        whole = named.name == "panther" and aggregators.entry("panther").metadata.tokens(named.options)
        c = trained.cell.n_prototypes if whole else 0
        weights = rows.double().numpy().reshape(len(samples), c, -1)[..., 0] if c else None  # of PANTHER's mixtures
        embeddings = Embeddings(str(method), tuple(samples), rows, weights, c)
        yield f"{method} [{', '.join(more)}]" if more else str(method), trained.fold, embeddings
