"""`panther doctor`."""

import typer

from panther.cli import _options as opt


def doctor(as_json: opt.JsonOption = False) -> None:
    """Show what this machine has, what is missing and how to get it."""
    import json

    from panther.doctor import examine

    findings = examine()
    if as_json:
        typer.echo(json.dumps([finding._asdict() for finding in findings], indent=2))
        return
    for finding in findings:
        mark = "ok " if finding.remedy is None else "-- "
        typer.echo(f"{mark}{finding.what:<14} {finding.found}" + (f"  ->  {finding.remedy}" if finding.remedy else ""))
