"""The notebooks run from their first cell to their last, and are stored without what they show."""

import json

import pytest

from conftest import ROOT

NOTEBOOKS = sorted((ROOT / "python/examples").glob("*.ipynb"))


def test_there_are_notebooks():
    assert len(NOTEBOOKS) >= 3


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, monkeypatch):
    pytest.importorskip("matplotlib").use("agg")
    pytest.importorskip("pandas")
    monkeypatch.chdir(path.parent)
    cells = json.loads(path.read_text())["cells"]
    names = {}
    for number, cell in enumerate(cells):
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None
            exec(compile("".join(cell["source"]), f"{path.name}:{number}", "exec"), names)
    if path.stem.startswith("01"):
        assert names["names"][names["shares"].argmax()] == "cat" and names["accuracy"] > 0.85
    if path.stem.startswith("02"):
        assert len(names["table"]) == len(names["report"].layers) and names["report"]._repr_html_()
    if path.stem.startswith("03"):
        assert names["found"].any() and names["ran"].cycles
