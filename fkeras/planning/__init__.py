"""Plans of training steps compiled for shapes, and profiles of training steps from measurements."""

from fkeras.planning.plan import Advice, CallPlan, Candidate, Plan, plan
from fkeras.planning.profile import CallProfile, Profile, profile

__all__ = (
    "Advice",
    "CallPlan",
    "CallProfile",
    "Candidate",
    "Plan",
    "Profile",
    "plan",
    "profile",
)
