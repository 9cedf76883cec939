"""The directive `{install}`: the command that installs fkeras from its public address.

```{install} files,train
```
"""

from __future__ import annotations

from typing import Any

from address import read_address
from docutils import nodes
from sphinx.util.docutils import SphinxDirective


class Install(SphinxDirective):
    """A command of pip, with extras as the optional argument."""

    optional_arguments = 1

    def run(self) -> list[nodes.Node]:
        extras = self.arguments[0] if self.arguments else ""
        command = f'pip install "{read_address().requirement(extras)}"'
        return [nodes.literal_block(command, command, language="bash")]


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("install", Install)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
