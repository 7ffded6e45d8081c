"""What a study file or a model says about the cohort's task, checked when it is written down."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator

from panther.cohort.endpoints import Endpoint, LabelEndpoint, SurvivalEndpoint

STRICT = ConfigDict(extra="forbid", frozen=True)


class Strict(BaseModel):
    """No key that is not known, and nothing changes."""

    model_config = STRICT


class TaskSpec(Strict):
    """What is predicted: a label column, or a survival endpoint."""

    label: str | None = None
    classes: tuple[str, ...] | None = None  # their order; all others are left out
    survival: str | None = None  # os, dss, dfi or pfi
    time: str | None = None  # columns of another name
    event: str | None = None  # 1 = event
    censorship: str | None = None  # 1 = censored
    level: Literal["patient", "slide"] = "patient"

    @model_validator(mode="after")
    def _one_of(self) -> "TaskSpec":
        survival = any(v is not None for v in (self.survival, self.time, self.event, self.censorship))
        if survival == (self.label is not None):
            raise ValueError("give either a label column or a survival endpoint")
        return self

    def endpoint(self) -> Endpoint:
        """As the cohort reads it."""
        if self.label is not None:
            return LabelEndpoint(self.label, self.classes)
        return SurvivalEndpoint(endpoint=self.survival, time=self.time, event=self.event, censorship=self.censorship)
