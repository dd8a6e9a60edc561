"""ZIP archives from outside, opened only when what is in them has a size that can be meant."""

from __future__ import annotations

import contextlib
import zipfile
from collections.abc import Iterator
from pathlib import Path

from assay.errors import InputError, one_line

MOST_BYTES = 16 * 2**30


@contextlib.contextmanager
def opened(path: Path, most_bytes: int = MOST_BYTES) -> Iterator[zipfile.ZipFile]:
    """An open archive, whose files unpacked are no larger than ``most_bytes`` together.

    Raises
    ------
    InputError
        When there is no such file, it is no archive, is too large unpacked, or proves damaged inside the block.
    """
    if not path.is_file():
        raise InputError(f"there is no file {path}")
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
            if size > most_bytes:
                raise InputError(
                    f"{path.name} holds {size / 2**30:.3g} GiB unpacked; up to {most_bytes / 2**30:.3g} GiB are read"
                )
            yield archive
    except (zipfile.BadZipFile, EOFError) as error:
        raise InputError(f"{path.name} is damaged, or no archive: {one_line(error, 120)}") from None
