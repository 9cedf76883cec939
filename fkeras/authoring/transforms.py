"""Names of transforms for wings: graphs recorded again, adapters put in and taken out."""

from fkeras.transforms.adapting.places import put_in as put_in
from fkeras.transforms.adapting.places import take_out as take_out
from fkeras.transforms.casting import with_policies as with_policies
from fkeras.transforms.depth import with_depth as with_depth
from fkeras.transforms.graph.rebuilding import runs_graph as runs_graph
from fkeras.transforms.remat import backend_options as backend_options
