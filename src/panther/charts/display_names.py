"""Names of methods and endpoints and clinical columns in tables, titles and sentences."""

import re
from collections import Counter
from collections.abc import Iterable

from panther.aggregators import aggregators
from panther.mil import networks
from panther.models.blocks import PCA
from panther.storage.clinical import PATIENT_COLUMNS, SITE_COLUMNS, SLIDE_COLUMNS

TITLES = {entry.name: entry.metadata.title for registry in (aggregators, networks) for entry in registry}
TITLES[PCA] = "PCA of the mean"
ENDPOINTS = {
    "os": "overall survival",
    "dss": "disease-specific survival",
    "dfi": "disease-free interval",
    "pfi": "progression-free interval",
    "dfs": "disease-free survival",
    "pfs": "progression-free survival",
    "rfs": "recurrence-free survival",
}

SURVIVAL = re.compile(
    rf"(?:({'|'.join(ENDPOINTS)})|survival)(?:[_.]survival)?"
    r"[_.](?:(days|months|years)|(time)|(censorship|censored)|event|status)",
    re.IGNORECASE,
)
USUAL = {
    name: title
    for title, names in (("Slide", SLIDE_COLUMNS), ("Patient", PATIENT_COLUMNS), ("Site", SITE_COLUMNS))
    for name in names
} | {"n_slides": "Slides", "patches": "Patches"}


def column_titles(names: Iterable[str]) -> dict[str, str]:
    """Titles of clinical columns; of columns with the same title, and others than the usual ones, their names."""
    titles = {name: _column_title(name) for name in names}
    count = Counter(titles.values())
    return {name: title if count[title] == 1 else name for name, title in titles.items()}


def _column_title(name: str) -> str:
    """`os_survival_days` is Overall survival (days); `OS.time` and `OS` of TCGA-CDR are Overall survival, time and event."""
    if name.isupper() and name.lower() in ENDPOINTS:
        return f"{ENDPOINTS[name.lower()].capitalize()}, event"
    match = SURVIVAL.fullmatch(name)
    if match is None:
        return USUAL.get(name, name)
    endpoint, unit, time, censored = match.groups()
    survival = ENDPOINTS[endpoint.lower()].capitalize() if endpoint else "Survival"
    return (
        f"{survival} ({unit.lower()})"
        if unit
        else f"{survival}, {'time' if time else 'censored' if censored else 'event'}"
    )


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
