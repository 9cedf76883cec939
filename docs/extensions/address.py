"""The public address of the project, and the links that derive from it."""

from __future__ import annotations

import dataclasses
import pathlib
import re
import tomllib

DOCS = pathlib.Path(__file__).resolve().parents[1]
ROOT = DOCS.parent
# the words and the file of a link to a file of the repository; other addresses have a colon
_LINK = re.compile(r"\[([^\[\]]+)\]\(([\w./-]+)\)")


@dataclasses.dataclass(frozen=True)
class Address:
    """Owner, name and branch of the repository, from `docs/address.toml`."""

    owner: str
    name: str
    branch: str

    @property
    def settled(self) -> bool:
        """Whether the address exists."""
        return bool(self.owner)

    @property
    def repository(self) -> str:
        return f"https://github.com/{self.owner}/{self.name}"

    @property
    def site(self) -> str:
        return f"https://{self.owner}.github.io/{self.name}"

    def page(self, page: str) -> str:
        """Returns the link of a page of the site, such as "tutorials/graph"."""
        return f"{self.site}/{page}.html"

    def file(self, path: str) -> str:
        """Returns the link of a file in the repository."""
        return f"{self.repository}/blob/{self.branch}/{path}"

    def colab(self, notebook: str) -> str:
        """Returns the link that opens a notebook of the repository in Colab."""
        return (
            f"https://colab.research.google.com/github/{self.owner}/{self.name}/blob/"
            f"{self.branch}/{notebook}"
        )

    def requirement(self, extras: str = "") -> str:
        """Returns what pip installs in Colab, such as `fkeras[files] @ git+https://...`.

        Without an address, pip installs the source archive that a user uploads to the runtime.
        """
        source = f"git+{self.repository}" if self.settled else f"file:///content/{archive()}"
        return f"fkeras{f'[{extras}]' if extras else ''} @ {source}"

    def install_command(self, extras: str = "") -> str:
        """Returns the command of pip; without an address it installs a clone, the folder "."."""
        if self.settled:
            return f'pip install "{self.requirement(extras)}"'
        return f'pip install ".[{extras}]"' if extras else "pip install ."

    def index_urls(self) -> dict[str, str]:
        """Returns the table `[project.urls]` for a package index; an empty table without an address."""
        if not self.settled:
            return {}
        return {
            "Documentation": self.site,
            "Source": self.repository,
            "Issues": f"{self.repository}/issues",
            "Changelog": self.file("CHANGELOG.md"),
        }

    def index_page(self, readme: str) -> str:
        """Returns the README for a package index, where a link between files leads nowhere.

        The links lead to the repository; without an address their words remain.
        """
        if not self.settled:
            return _LINK.sub(r"\1", readme)
        return _LINK.sub(lambda link: f"[{link[1]}]({self.file(link[2])})", readme)


def read_address() -> Address:
    """Reads `docs/address.toml`."""
    return Address(**tomllib.loads((DOCS / "address.toml").read_text("utf-8")))


def read_version() -> str:
    """Returns `fkeras.__version__` without an import of fkeras."""
    source = (ROOT / "fkeras" / "__init__.py").read_text("utf-8")
    return re.search(r'^__version__ = "(.+)"$', source, re.M)[1]


def archive() -> str:
    """Returns the file name of the source archive, such as "fkeras-0.2.0.tar.gz"."""
    return f"fkeras-{read_version()}.tar.gz"
