"""The public address of the project, and the links that derive from it."""

from __future__ import annotations

import dataclasses
import pathlib
import tomllib

DOCS = pathlib.Path(__file__).resolve().parents[1]
ROOT = DOCS.parent


@dataclasses.dataclass(frozen=True)
class Address:
    """Owner, name and branch of the repository, from `docs/address.toml`."""

    owner: str
    name: str
    branch: str

    @property
    def settled(self) -> bool:
        """Whether the address exists: names of owners have no underscore."""
        return "_" not in self.owner

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
        """Returns what pip installs, such as `fkeras[files] @ git+https://...`."""
        return f"fkeras{f'[{extras}]' if extras else ''} @ git+{self.repository}"


def read_address() -> Address:
    """Reads `docs/address.toml`."""
    return Address(**tomllib.loads((DOCS / "address.toml").read_text()))
