"""`panther similar` and `retrieval`."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from panther.errors import InputError, note
from panther.verbs import parameters as p
from panther.verbs import verb

if TYPE_CHECKING:
    from panther.search.retrieval import Retrieval
    from panther.search.similar import SimilarSlides

Way = Literal["pi", "mixture", "cosine"]


@verb("similar", "Look")
def similar(
    embeddings: Annotated[Any, p.option(text=Path, metavar="FILE")],
    query: Annotated[Any, p.option(text=str, required=True, metavar="NAME|FILE")],
    k: Annotated[int, Field(ge=1, le=1_000_000, strict=True), p.option(name=["--neighbours", "-k"])] = 10,
    *,
    on: Way | None = None,
    prototypes: p.PrototypesLike = None,
    table: p.TableLike = None,
    slide_column: p.SlideColumn = None,
    patient_column: p.PatientColumn = None,
    site_column: p.SiteColumn = None,
    same_patient: Annotated[bool, p.option(panel=p.SLIDES)] = False,
    leave_site_out: p.LeaveSiteOut = False,
    names: p.PrototypeNames = None,
    output: p.OutputFolder = None,
) -> "SimilarSlides":
    """Find the most similar slides of other patients, with reasons.

    Parameters
    ----------
    embeddings : EmbeddingTable, AnnData or path
        Embeddings of the cohort (`.h5ad` or `.zarr`, searched on disk), or vectors of a slide encoder.
    query : str, path or bag
        A slide of the embeddings by its name; or a new slide's features (a file, a bag or an array), with ``prototypes``.
    k : int, default=10
        How many slides.
    on : {"pi", "mixture", "cosine"}, optional
        What is compared: proportions of prototypes (Hellinger's distance; the default where there are any), whole mixtures (proportions, means and
        variances), or vectors of any kind.
    prototypes : Prototypes or path, optional
        Those that the embeddings were made with: for a new slide.
    table : path or DataFrame, optional
        Clinical table with the patients of the slides; by default the embeddings' columns.
    slide_column, patient_column, site_column : str, optional
        Columns of the table, if not the default names.
    same_patient : bool, default=False
        Include other slides of the patient.
    leave_site_out : bool, default=False
        Leave out slides of the same site: stain and scanner make them alike.
    names : path or mapping, optional
        Names of the prototypes, for the reasons.
    output
        Folder for similar.csv and similar.json.

    Returns
    -------
    SimilarSlides
        Slides with distances and reasons; `to_frame()` is a table of them.

    Examples
    --------
    >>> import numpy as np, torch, panther
    >>> rng = np.random.default_rng(0)
    >>> bags = {name: rng.normal(size=(50, 3)) + 3 * np.eye(3)[n % 2] for n, name in enumerate("abcd")}
    >>> table = panther.embed_cohort(bags, panther.Prototypes(3 * torch.eye(3)))
    >>> result = panther.similar(table, "a", k=1, names={0: "tumour"})
    >>> result.hits[0].slide
    'c'
    >>> result.hits[0].reasons.shared[0]
    0
    """
    from panther.explain.names import as_names
    from panther.search.neighbours import as_embeddings, ownership, searchable
    from panther.search.similar import SimilarSlides, excluded, make_query, nearest_slides
    from panther.storage.clinical import Columns
    from panther.storage.files import write_json
    from panther.storage.tables import write_spreadsheet
    from panther.store import check_output_folder

    if output is not None:
        written = ("similar.csv", "similar.json")
        check_output_folder(output, written, embeddings, table, names, prototypes)
    cohort = as_embeddings(embeddings)
    way = searchable(cohort, on)
    slide = make_query(cohort, way, query, prototypes)
    owners = ownership(cohort, table, Columns(slide_column, patient_column, site_column))
    apart = excluded(slide, owners, same_patient=same_patient, leave_site_out=leave_site_out)
    known = as_names(names, 0 if cohort.weights is None else int(cohort.weights.shape[1]))
    hits = nearest_slides(cohort, way, slide, k, apart, owners, known)
    notes = [*cohort.problems, *owners.notes]
    if len(hits) < k:
        notes.append(f"k: there are {len(hits)} slides to compare with, fewer than {k}")
    result = SimilarSlides(slide.name, way.on, hits, tuple(notes))
    if output is not None:
        rows = result.to_frame()
        write_spreadsheet(output / "similar.csv", list(rows.columns), rows.itertuples(index=False))
        write_json(output / "similar.json", result.to_json())
    note(*result.notes)
    return result


@verb("retrieval", "Predict and compare")
def retrieval(
    embeddings: Annotated[
        Any,
        p.option(n_tokens=-1, converter=lambda _, tokens: [Path(token.value) for token in tokens], metavar="FILE..."),
    ],
    table: p.TableLike = None,
    label: Annotated[str | None, p.option(panel=p.OUTCOME, required=True)] = None,
    *,
    on: Annotated[list[Way] | None, BeforeValidator(p.split_names), p.option(text=p.split_names, metavar="A,B")] = None,
    at: Annotated[
        list[Annotated[int, Field(ge=1, le=1000)]],
        BeforeValidator(p.split_names),
        Field(min_length=1),
        p.option(text=p.split_names, metavar="K,K"),
    ] = (1, 3, 5, 10),  # type: ignore[assignment]
    classes: Annotated[p.Names, p.option(panel=p.OUTCOME)] = None,
    leave_site_out: p.LeaveSiteOut = False,
    slide_column: p.SlideColumn = None,
    patient_column: p.PatientColumn = None,
    site_column: p.SiteColumn = None,
    bootstrap: Annotated[int, Field(ge=0, strict=True)] = 1000,
    seed: p.Seed = 0,
    output: Annotated[Path | None, p.option(short="-o", metavar="FILE")] = None,
) -> "Retrieval":
    """Judge embeddings by whether the nearest slides of other patients have the same label: Acc@k, mMV@k, mAP@k.

    Slides of one patient are never compared.

    Parameters
    ----------
    embeddings : EmbeddingTable, AnnData, path, list of paths, or mapping of names to them
        Embeddings (.h5ad, .zarr), or vectors of slide encoders; several are compared with the first, on the slides that all have.
    table : path or DataFrame, optional
        Clinical table with the label; by default the embeddings' columns.
    label : str
        Column of the label.
    on : str or list of str, optional
        What is compared, see :func:`panther.similar`; several are judged beside each other.
    at : sequence of int
        Numbers k of neighbours.
    classes : sequence of str, optional
        Classes that count; all by default.
    leave_site_out : bool, default=False
        Whether neighbours must be of another site.
    slide_column, patient_column, site_column : str, optional
        Columns of the table, if not the default names.
    bootstrap : int, default=1000
        Resamples of the patients for the intervals; 0: none.
    seed : int, default=0
        Same seed and input: same intervals.
    output
        Table to write, .csv or .parquet.

    Returns
    -------
    Retrieval
        Tables `summary` and `comparisons`, and notes.

    Examples
    --------
    >>> import numpy as np, pandas as pd, torch, panther
    >>> rng = np.random.default_rng(0)
    >>> bags = {f"S{n}": rng.normal(size=(50, 3)) + 3 * np.eye(3)[n % 2] for n in range(12)}
    >>> cohort = panther.embed_cohort(bags, panther.Prototypes(3 * torch.eye(3)))
    >>> table = pd.DataFrame({"slide_id": list(bags), "case_id": list(bags), "subtype": ["a", "b"] * 6})
    >>> result = panther.retrieval(cohort, table, "subtype", at=[1])
    >>> result.summary.query("group == 'all' and metric == 'acc'")[["value", "chance"]].round(2).values.tolist()
    [[1.0, 0.45]]
    """
    from panther.cohort.spec import TaskSpec, checked
    from panther.search.neighbours import as_embeddings, searchable
    from panther.search.retrieval import Retrieval, classes_of, judge, labelled_slides, rows_of, summarise
    from panther.storage.clinical import Columns
    from panther.storage.tables import write_table
    from panther.store import check_output

    if label is None:
        raise InputError("label: found None, expected the column of the label")
    files = _named(embeddings)
    if output is not None:
        if output.suffix not in (".csv", ".parquet"):
            raise InputError(f"output: {output} ends in {output.suffix!r}, expected .csv or .parquet")
        check_output(output, *files.values(), table)
    opened = {name: as_embeddings(one) for name, one in files.items()}
    task = checked(TaskSpec, label=label, classes=tuple(classes) if classes else None, level="slide")
    columns = Columns(slide_column, patient_column, site_column)
    cohort, notes = labelled_slides(opened, table, task, columns, with_sites=leave_site_out)
    judged = {}
    for name, representation in opened.items():
        rows = rows_of(cohort, representation)
        for way in on or (None,):
            title = f"{name} on {way}" if on and len(on) > 1 else name
            queries = judge(searchable(rows, way), cohort, sorted(set(at)), leave_site_out=leave_site_out)
            if missing := len(cohort) - len(queries.ids):
                notes.append(
                    f"{title}: {missing} of {len(cohort)} slides are no queries: no other patient has their label"
                )
            judged[title] = queries
    if any(len(queries.ids) == 0 for queries in judged.values()):
        raise InputError(f"label: no slide has a slide of another patient with the same {label}")
    notes += [problem for representation in opened.values() for problem in representation.problems]
    result = Retrieval(*summarise(judged, classes_of(cohort).names, bootstrap, seed), tuple(notes))
    if output is not None:
        write_table(output, result.summary)
    note(*result.notes)
    return result


def _named(embeddings: Any) -> Mapping[str, Any]:
    """Representations by name: files by theirs, or by their paths where names repeat."""
    if isinstance(embeddings, Mapping):
        return embeddings
    if not isinstance(embeddings, (list, tuple)):
        return {"embeddings": embeddings}
    stems = [Path(file).stem for file in embeddings]
    names = stems if len(set(stems)) == len(stems) else list(map(str, embeddings))
    if len(set(names)) < len(names):
        raise InputError(f"embeddings: {embeddings[0]} is there twice; `on` compares several ways on one file")
    return dict(zip(names, embeddings, strict=True))
