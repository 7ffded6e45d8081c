"""A method, head, loss or scaling as people write it: a name, with settings where it has any."""

import json
from typing import Any

from pydantic import Field

from panther.cohort.spec import Strict


class Named(Strict):
    """A name with settings: `ot`, or `{name: ot, epsilon: 0.05}`."""

    name: str
    options: dict[str, Any] = Field(default_factory=dict)
    label: str | None = None  # what tables call it

    @property
    def title(self) -> str:
        """What tables call it: the label, or the name with its settings."""
        if self.label:
            return self.label
        settings = ", ".join(f"{name} {_shown(value)}" for name, value in self.options.items())
        return self.name + (f" ({settings})" if settings else "")

    def key(self) -> str:
        """Text that is the same for the same name and settings."""
        return json.dumps([self.name, self.options], sort_keys=True)


def _shown(value: Any) -> str:
    return " + ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)


def as_named(value: Any) -> Any:
    """Plain values of a study file (`ot`, `{name: ot, epsilon: 0.05}`) as fields of :class:`Named`."""
    if isinstance(value, str):
        return {"name": value}
    if isinstance(value, dict) and "name" in value and "options" not in value:
        rest = {k: v for k, v in value.items() if k not in ("name", "label")}
        return {"name": value["name"], "label": value.get("label"), "options": rest}
    return value
