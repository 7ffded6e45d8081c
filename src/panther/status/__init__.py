"""How far work is, seen from outside: read from what it has written so far, by anybody who may read it. Nothing is changed."""

from panther.status.look import look_at
from panther.status.measure import InHand, StepStatus, WorkStatus

__all__ = ["InHand", "StepStatus", "WorkStatus", "look_at"]
