"""`panther run` and `panther study`."""

from pathlib import Path
from typing import Annotated

import typer

from panther.cli import _common as common
from panther.cli import _options as opt

files = typer.Typer(no_args_is_help=True, help="Study files: templates of the paper's experiments, and the schema.")


def run(
    study_file: Annotated[Path, typer.Argument(metavar="STUDY", help="Study file (YAML).", show_default=False)],
    folder: Annotated[Path, typer.Option("-o", "--output", help="Folder for results and cache.", show_default=False)],
    workers: opt.WorkersOption = "0",
    device: Annotated[
        str, typer.Option(help="Where networks are trained: auto (a GPU if there is one), cpu, cuda, cuda:1 ...")
    ] = "auto",
    as_json: opt.JsonOption = False,
) -> None:
    """Run a study: every method, head and loss over every fold; a killed run resumes."""
    from panther.study.run import WRITTEN, run_study

    with common.open_work(workers, None, device) as work:
        results = run_study(study_file, folder, work=work)
    run = results.run
    summary = results.summary.astype(object).where(results.summary.notna(), None)
    files = [str(path) for pattern in WRITTEN for path in sorted(folder.glob(pattern))]
    lines = [*run.population.notes, "", results.table(), f"Tables, predictions and models: {folder}"]
    result = {"summary": summary.to_dict("records"), "files": files}
    common.report(result, lines, run.failures, as_json=as_json, notes=run.notes)


@files.command("new")
def new(
    name: Annotated[str, typer.Argument(help="Template; `panther study list` shows them.", show_default=False)],
    output: Annotated[Path | None, typer.Option("-o", "--output", help="File to write; NAME.yaml by default.")] = None,
    literal: Annotated[
        bool, typer.Option("--literal", help="The paper to the letter: every setting written out, none of them ours.")
    ] = False,
) -> None:
    """Write a study file to start from."""
    from panther.study.literal import literal_text
    from panther.study.templates import write_study, write_template

    path = output or Path(f"{name}.yaml")
    if literal:
        write_study(literal_text(name, path.stem), path)
    else:
        write_template(name, path)
    typer.echo(f"{path}: fill in the paths, then run: panther run {path} -o {path.stem}/")


@files.command("list")
def list_templates() -> None:
    """List the templates."""
    from panther.study.templates import TEMPLATES

    for name, template in TEMPLATES.items():
        typer.echo(f"{name:<20} {template.title}")


@files.command("schema")
def schema() -> None:
    """Print the JSON schema of study files, for editors."""
    import json

    from panther.study.file import Study

    typer.echo(json.dumps(Study.model_json_schema(), indent=2))
