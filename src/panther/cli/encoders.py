"""`panther encoders`."""

from typing import Any

from panther.cli import _common as common
from panther.cli import _options as opt


def list_encoders(as_json: opt.JsonOption = False) -> None:
    """List the encoders: dimension, input, resolution, licence, and where access to the weights is granted."""
    from panther.encoders import about, encoders

    known = [about(entry.name) for entry in encoders]
    lines = [f"{'name':<17} {'dim':>5} {'input':>6}  {'um/px':<6} {'licence':<26} weights", *map(_line, known)]
    lines.append("Also: timm:NAME for any model of timm, module.path:factory for your own.")
    common.report({"encoders": [facts.public() for facts in known]}, lines, {}, as_json=as_json)


def _line(facts: Any) -> str:
    mpp = "any" if facts.mpp is None else f"{facts.mpp:g}"
    hub = f"https://huggingface.co/{facts.hub}" if facts.hub else None
    where = f"gated: {facts.gated}" if facts.gated else hub or facts.page or "embedded"
    return f"{facts.name:<17} {facts.dim:>5} {facts.size:>6}  {mpp:<6} {facts.licence:<26} {where}"
