"""The notebooks run from their first cell to their last in a kernel of Jupyter's, and are stored without what they
show. `scripts/python` runs them with the newest Python alone; `PYVTA_NOTEBOOKS=full` searches longer."""

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

ROOT = Path(__file__).parents[3]
NOTEBOOKS = sorted((ROOT / "python/examples").glob("*.ipynb"))

#: What must hold behind the last cell, and what a small run replaces.
HOLDS = {
    "01_classify_a_photo": "assert names[shares.argmax()] == 'cat' and accuracy > 0.85",
    "02_where_the_cycles_go": "assert len(table) == len(report.layers) and report._repr_html_()",
    "03_an_instruction_by_hand": "assert found.any() and ran.cycles and stepper.state(stepper.overview['last'])['out'][0]['values'] == [16] + [32] * 15",
    "04_quantize_a_torchvision_model": (
        "assert len(table) == 5 and (table['cosine'] > 0.97).all(), table\n"
        "assert (table['same label'] >= 0.8).all(), table"
    ),
    "05_search_a_configuration": "assert len(done) > 10 and 3 <= len(front) <= len(done) and default['cycles']",
}
SMALL = {"05_search_a_configuration": ("trials = 60", "trials = 30")}


def test_every_notebook_has_what_must_hold():
    assert sorted(HOLDS) == [path.stem for path in NOTEBOOKS]


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path, tmp_path, monkeypatch):
    monkeypatch.setenv("PYVTA_CACHE", str(tmp_path))
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        if cell.cell_type == "code":
            assert cell.outputs == [] and cell.execution_count is None
    if path.stem in SMALL and os.environ.get("PYVTA_NOTEBOOKS") != "full":
        long, short = SMALL[path.stem]
        assert sum(cell.source.count(long) for cell in notebook.cells) == 1
        for cell in notebook.cells:
            cell.source = cell.source.replace(long, short)
    notebook.cells.append(nbformat.v4.new_code_cell(HOLDS[path.stem]))
    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(path.parent)}}
    )
    client.execute()
    # A cell whose last line is a value shows it.
    shown = [output.output_type for cell in notebook.cells if cell.cell_type == "code" for output in cell.outputs]
    assert {"execute_result", "display_data", "stream"} & set(shown) and "error" not in shown
