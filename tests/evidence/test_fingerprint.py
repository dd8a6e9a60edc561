import sys
import textwrap

import pytest

from assay.evidence.fingerprint import code_fingerprint, digest, file_fingerprint, module_fingerprint, package_versions


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package with a room, a module that the room imports through another, and one that it does not."""
    files = {
        "kit/__init__.py": "",
        "kit/base.py": "X = 1",
        "kit/middle.py": "from . import base",
        "kit/other.py": "Y = 1",
        "kit/room/__init__.py": "",
        "kit/room/study.py": "import kit.middle",
        "kit/room/algorithm.py": "A = 1",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    for name in [name for name in sys.modules if name.partition(".")[0] == "kit"]:
        del sys.modules[name]
    code_fingerprint.cache_clear()
    return tmp_path


@pytest.mark.parametrize(
    ("file", "counts"),
    [
        ("kit/room/study.py", True),
        ("kit/room/algorithm.py", True),
        ("kit/middle.py", True),
        ("kit/base.py", True),
        ("kit/other.py", False),
    ],
)
def test_code_counts_where_the_room_imports_it(package, file, counts):
    before = code_fingerprint("kit.room.study")
    code_fingerprint.cache_clear()
    assert code_fingerprint("kit.room.study") == before
    with (package / file).open("a") as text:
        text.write("\n# changed\n")
    code_fingerprint.cache_clear()
    assert (code_fingerprint("kit.room.study") != before) is counts


def test_a_room_of_assay_counts_its_numerics_and_not_the_engine():
    from assay.evidence import fingerprint

    base = fingerprint.Path(fingerprint.__file__).parents[2]
    room = sorted((base / "assay/statistics/knockoff_pca").glob("*.py"))
    names = {str(path.relative_to(base)) for path in fingerprint._with_imports(room, base)}
    assert "assay/numerics/spectra.py" in names
    assert "assay/statistics/knockoff_pca/study.py" in names
    assert not [name for name in names if name.startswith("assay/evidence")]


def test_files_and_folders_count_by_content_and_name(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_text("1")
    first = file_fingerprint(tmp_path / "a")
    assert file_fingerprint(tmp_path / "a") == first
    (tmp_path / "a" / "x").write_text("2")
    second = file_fingerprint(tmp_path / "a")
    (tmp_path / "a" / "x").rename(tmp_path / "a" / "y")
    assert len({first, second, file_fingerprint(tmp_path / "a")}) == 3


def test_a_users_module_counts_with_what_it_imports_from_beside_it(tmp_path):
    (tmp_path / "mine.py").write_text("import helper, numpy")
    (tmp_path / "helper.py").write_text("X = 1")
    (tmp_path / "unrelated.py").write_text("X = 1")
    before = module_fingerprint("mine", tmp_path)
    (tmp_path / "unrelated.py").write_text("X = 2")
    assert module_fingerprint("mine", tmp_path) == before
    (tmp_path / "helper.py").write_text(textwrap.dedent("X = 2"))
    assert module_fingerprint("mine", tmp_path) != before
    (tmp_path / "mine.py").write_text("this is no Python")
    assert module_fingerprint("mine", tmp_path) != before


def test_an_installed_module_counts_by_its_own_files(tmp_path):
    assert module_fingerprint("json", tmp_path)
    assert module_fingerprint("json", tmp_path) != module_fingerprint("textwrap", tmp_path)
    assert module_fingerprint("no_such_module", tmp_path) == ""


def test_versions_are_those_of_the_base_and_of_the_extras():
    import numpy

    assert package_versions()["numpy"] == numpy.__version__
    assert "pyrpca" in package_versions(["statistics-study"])
    assert "pyrpca" not in package_versions()


def test_digests_differ_where_the_parts_do():
    assert digest("a", 1) == digest("a", 1)
    assert len({digest("a", 1), digest("a", "1"), digest("a1"), digest(["a", 1]), digest({"a": 1})}) == 5
