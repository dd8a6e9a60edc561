import io
import os
import pickle

import numpy as np
import pytest

from assay.errors import InputError, MissingPart
from assay.parts.packages import checked_file
from assay.parts.pickled import ARRAYS, FRAMES, read_pickle


class Hostile:
    def __init__(self, call, *arguments):
        self.call, self.arguments = call, arguments

    def __reduce__(self):
        return self.call, self.arguments


def test_arrays_come_back():
    arrays = [np.arange(6.0).reshape(2, 3), np.array(["a", None], dtype=object), np.array(3)]
    for read, array in zip(read_pickle(pickle.dumps(arrays), "it", ARRAYS), arrays, strict=True):
        np.testing.assert_array_equal(read, array)


@pytest.mark.parametrize("protocol", range(6))
def test_a_hostile_pickle_is_refused_and_does_nothing(tmp_path, protocol):
    witness = tmp_path / "it-ran"
    for thing in (
        Hostile(os.system, f"touch {witness}"),
        Hostile(exec, f"open({str(witness)!r}, 'w')"),
        Hostile(getattr, "x", "upper"),
        Hostile(np.load, str(witness)),
        Hostile(np.memmap, str(witness), "u1", "w+", 0, (4,)),
        [1, {"deep": Hostile(open, str(witness), "w")}],
    ):
        for allowed in (ARRAYS, FRAMES):
            with pytest.raises(InputError, match="the file is refused: it would call"):
                read_pickle(pickle.dumps(thing, protocol=protocol), "the file", allowed)
    assert not witness.exists()


def test_attributes_of_what_is_allowed_are_not_reached():
    # Since protocol 4 a name may have dots: DataFrame.eval would run an expression.
    dotted = b"\x80\x04\x8c\x11pandas.core.frame\x8c\x0eDataFrame.eval\x93."
    with pytest.raises(InputError, match=r"pandas\.core\.frame\.DataFrame\.eval"):
        read_pickle(dotted, "the file", FRAMES)


def test_what_lies_outside_and_what_is_damaged_is_refused():
    buffer = io.BytesIO()
    pickler = pickle.Pickler(buffer, protocol=4)
    pickler.persistent_id = lambda thing: "elsewhere" if thing == "x" else None
    pickler.dump(["x"])
    with pytest.raises(InputError, match="outside itself"):
        read_pickle(buffer.getvalue(), "the file", ARRAYS)
    whole = pickle.dumps(np.arange(100))
    for damaged in (b"", b"no pickle", whole[: len(whole) // 2]):
        with pytest.raises(InputError, match="the file cannot be read"):
            read_pickle(damaged, "the file", ARRAYS)


def test_bytes_of_old_pickles_are_read_as_latin1_only():
    old = b"\x80\x02c_codecs\nencode\nX\x01\x00\x00\x00aX\x06\x00\x00\x00latin1\x86R."
    assert read_pickle(old, "it", ARRAYS) == b"a"
    with pytest.raises(InputError, match="'rot13'"):
        read_pickle(old.replace(b"\x06\x00\x00\x00latin1", b"\x05\x00\x00\x00rot13"), "it", ARRAYS)


def test_another_file_than_the_known_one_is_not_read(tmp_path, monkeypatch):
    (tmp_path / "a_package").mkdir()
    (tmp_path / "a_package" / "a.txt").write_text("content")
    monkeypatch.syspath_prepend(tmp_path)
    digest = "ed7002b439e9ac845f22357d822bac1444730fbdb6016d3ec9432297b9ec9f73"
    assert checked_file("a_package", "a.txt", sha256=digest) == b"content"
    assert checked_file("a_package", "a.txt", sha256=None) == b"content"
    other = r"a_package has another a\.txt than the one known here; install it with: python -m pip install a-package"
    with pytest.raises(MissingPart, match=other):
        checked_file("a_package", "a.txt", sha256="0" * 64)
    with pytest.raises(MissingPart, match=other):
        checked_file("a_package", "a.txt", sha256=digest, most_bytes=6)
