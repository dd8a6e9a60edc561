"""The user's cache folder: where costly things that can be made again are kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path


def cache_folder() -> Path:
    """The folder for things that can be made again: ``$ASSAY_CACHE``, or ``assay`` in the system's cache folder."""
    own = os.environ.get("ASSAY_CACHE")
    if own:
        return Path(own)
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "assay"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "assay"
