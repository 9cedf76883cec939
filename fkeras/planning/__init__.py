"""Plans of training steps compiled for shapes, and profiles of training steps from measurements."""

from fkeras.authoring.engine import publish as _publish
from fkeras.planning.estimate import CallEstimate as CallEstimate
from fkeras.planning.estimate import Estimate as Estimate
from fkeras.planning.plan import Advice as Advice
from fkeras.planning.plan import CallPlan as CallPlan
from fkeras.planning.plan import Candidate as Candidate
from fkeras.planning.plan import Plan as Plan
from fkeras.planning.plan import plan as plan
from fkeras.planning.profile import CallProfile as CallProfile
from fkeras.planning.profile import Profile as Profile
from fkeras.planning.profile import profile as profile

_publish(__name__)
