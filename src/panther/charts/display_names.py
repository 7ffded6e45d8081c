"""Names of methods and endpoints in tables, titles and sentences."""

from panther.aggregators import aggregators
from panther.mil import networks
from panther.models.blocks import REDUCED

TITLES = {entry.name: entry.metadata.title for registry in (aggregators, networks) for entry in registry}
TITLES |= {name: row.title for name, row in REDUCED.items()}
ENDPOINTS = {
    "os": "overall survival",
    "dss": "disease-specific survival",
    "dfi": "disease-free interval",
    "pfi": "progression-free interval",
    "dfs": "disease-free survival",
    "pfs": "progression-free survival",
    "rfs": "recurrence-free survival",
}


def method_title(method: str) -> str:
    """`abmil` is ABMIL, `ot (epsilon 0.1)` is OT (epsilon 0.1); a label of the study file stays."""
    name, space, rest = method.partition(" ")
    known = name in TITLES and (not space or rest.startswith(("(", "+", "[")))
    return f"{TITLES[name]}{space}{rest}" if known else method


def endpoint_title(endpoint: str | None, time: str | None = None) -> str:
    """`dss` is disease-specific survival; other columns keep their names."""
    if endpoint is not None:
        words = ENDPOINTS.get(endpoint.lower())
        return f"{words} ({endpoint.upper()})" if words else f"survival ({endpoint})"
    return f"survival ({time})" if time else "survival"
