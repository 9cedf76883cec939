"""Names for annotations: classes of `fkeras.training` ahead of their definition.

Most files of a training come before `Trainer` in the order of imports, and take a trainer as an
argument. Type checkers see the classes here. At run time, where no annotation is evaluated, the
names have no meaning.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fkeras.training.data.stream_feed import Batches as Batches
    from fkeras.training.loop.fitting import Options as Options
    from fkeras.training.loop.saver import Saver as Saver
    from fkeras.training.trainer import Optimizer as Optimizer
    from fkeras.training.trainer import Trainer as Trainer
else:
    Batches = Optimizer = Options = Saver = Trainer = None
