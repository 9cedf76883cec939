"""The directives `{install}` and `{install-colab}`: how to install fkeras.

```{install} files,train
```

shows the command that installs fkeras with these extras from its public address. Without an address
the command installs from a clone or from the unpacked source archive. `{install-colab}` shows the
first cell of the notebooks.
"""

from __future__ import annotations

from typing import Any

import notebooks
from address import read_address
from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class Install(SphinxDirective):
    """A command of pip, with extras as the optional argument."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        command = read_address().install_command(self.arguments[0] if self.arguments else "")
        return [nodes.literal_block(command, command, language="bash")]


class InstallColab(Install):
    """The first cell of a notebook."""

    def run(self) -> list[nodes.Node]:
        cell = notebooks.first_cell(self.arguments[0] if self.arguments else "").strip()
        return [nodes.literal_block(cell, cell, language="text")]


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("install", Install)
    app.add_directive("install-colab", InstallColab)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
