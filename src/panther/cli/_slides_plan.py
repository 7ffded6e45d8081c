"""`panther slides --dry-run`: what it would come to."""

import os
from collections.abc import Iterable, Mapping
from typing import Any

from panther.cli import _common as common
from panther.progress import duration

MOST = 10  # slides whose notes are printed


def show_plan(listing: Any, planner: Any, features: Any, workers: int, as_json: bool, notes: list[str]) -> None:
    """Print patches, bytes and time, and the notes that the job would print; nothing is written."""
    from panther.engine import collect, open_work
    from panther.slides.plan import totals

    with open_work(workers, track=common.track) as work:
        plans, failed = collect(planner, listing.refs, "planning", work)
    failures = {**listing.problems, **failed}
    dims = (1024, 1280) if features is None else (features.dim,)
    sums = totals(plans.values(), workers or os.cpu_count() or 1, dims)
    if features is not None and sums["patches"]:
        sums["encode_seconds"] = sums["patches"] / features.rate()
    result = {"dry_run": True, **sums, "plans": {name: vars(plan) for name, plan in plans.items()}}
    noted = {name: _note(plan, planner, features) for name, plan in plans.items()}
    notes = [*listing.notes, *notes_on_slides(noted.items(), "--json lists all"), *notes]
    common.report(result, _plan_lines(plans, sums), failures, as_json=as_json, notes=notes)


def notes_on_slides(noted: Iterable[tuple[str, str]], others: str) -> list[str]:
    """Notes on slides (name, note), the first ones; ``others`` says where the rest is."""
    said = [f"{name}: {note}." for name, note in noted if note]
    more = [f"... and {len(said) - MOST} more slides with notes; {others}."] if len(said) > MOST else []
    return said[:MOST] + more


def _note(plan: Any, planner: Any, features: Any) -> str:
    from panther.slides.steps import joined

    return joined(plan.note, "" if features is None else features.made_for_another(planner.patches.mpp))


def _plan_lines(plans: Mapping[str, Any], sums: Mapping[str, float]) -> list[str]:
    lines = [f"  {name}: {plan.patches:,} patches, {plan.mpp:g} um/px" for name, plan in list(plans.items())[:20]]
    if len(plans) > 20:
        lines.append(f"  ... and {len(plans) - 20} more slides; --json lists all")
    sizes = " or ".join(f"{v / 1e6:,.1f} MB (d={k.rpartition('_')[2]})" for k, v in sums.items() if "bytes" in k)
    encoder = f"{duration(sums['encode_seconds'])} to encode them" if "encode_seconds" in sums else "the encoder on top"
    return [
        *lines,
        f"{sums['slides']} slides, {sums['patches']:,} patches; features in float16: {sizes}",
        f"About {duration(sums['tissue_seconds'])} to find tissue, {duration(sums['decode_seconds'])} to decode the patches, "
        f"{encoder}. Nothing was written.",
    ]
