"""Populations: trainings with different hyperparameters in one program, and rules between epochs."""

from fkeras.authoring.engine import publish as _publish
from fkeras.training.population.history import FittedMembers as FittedMembers
from fkeras.training.population.history import MemberHistory as MemberHistory
from fkeras.training.population.hyperparameters import Hyperparameter as Hyperparameter
from fkeras.training.population.population import Population as Population
from fkeras.training.population.population import populate as populate
from fkeras.training.population.rules import Decision as Decision
from fkeras.training.population.rules import EarlyStopping as EarlyStopping
from fkeras.training.population.rules import PopulationBased as PopulationBased
from fkeras.training.population.rules import Rule as Rule
from fkeras.training.population.rules import SuccessiveHalving as SuccessiveHalving

_publish(__name__)
