"""The hook of hatchling that gives each build the README and the URLs of `docs/address.toml`."""

import pathlib
import sys

from hatchling.metadata.plugin.interface import MetadataHookInterface

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "docs" / "extensions"))

from address import read_address  # noqa: E402


class Hook(MetadataHookInterface):
    """Adds `readme` and `urls` to the metadata."""

    def update(self, metadata):
        address = read_address()
        text = address.index_page((ROOT / "README.md").read_text("utf-8"))
        metadata["readme"] = {"content-type": "text/markdown", "text": text}
        metadata["urls"] = address.index_urls()
