"""Plans of training steps from shapes, and profiles of training steps from measurements."""

from fkeras.planning.plan import Advice, CallPlan, Candidate, Plan, plan

__all__ = ("Advice", "CallPlan", "Candidate", "Plan", "plan")
