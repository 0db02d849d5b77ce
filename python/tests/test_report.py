"""Where cycles go: the figures of the command line, as Python likes them."""

import json
import pickle
import sys

import numpy as np
import pytest

import pyvta
from conftest import onnx_bytes, pictures


@pytest.fixture(scope="module")
def session():
    session = pyvta.InferenceSession("demo", device="cycle", timing="pac")
    assert session.report is None
    session.run(None, {"input": pictures(2)})
    return session


@pytest.fixture
def report(session):
    return session.report


def test_other_devices_have_no_report(demo):
    demo.run(None, {"input": pictures(1)})
    assert demo.report is None


def test_figures_are_those_of_the_command_line(report, vta):
    run = vta("run", "demo", "--device", "cycle", "--timing", "pac", "--limit", "1", "--json")
    told = json.loads(run)
    of_python = report.to_dict()
    assert report.cycles == told["cycles"] == of_python["cycles"]
    assert report.bound_cycles == told["bound_cycles"]
    assert report.energy_uj == pytest.approx(told["energy_uj"])
    by_name = {layer["name"]: layer for layer in told["layers"]}
    assert [layer["name"] for layer in report.layers] == list(by_name)
    for layer in report.layers:
        for key in ("cycles", "bound_cycles", "macs", "spend", "stalls", "limited_by"):
            assert layer[key] == by_name[layer["name"]][key]


def test_stalls_and_layers_add_up(report):
    of_layers = {}
    for layer in report.layers:
        for stall in layer["stalls"]:
            unit = of_layers.setdefault(stall["unit"], {})
            unit[stall["reason"]] = unit.get(stall["reason"], 0) + stall["cycles"]
    assert report.stalls == of_layers
    assert sum(layer["cycles"] for layer in report.layers) == report.cycles
    assert report.bound_cycles < report.cycles


def test_busy_shares_are_those_of_the_layers(report):
    busy = report.busy()
    assert {"fetch", "load", "GEMM", "ALU", "store"} < set(busy)
    for values in busy.values():
        assert values.dtype == np.float64 and values.shape == (1000,)
        assert 0 <= values.min() and values.max() <= 1 + 1e-9
    gemm = sum(layer["spend"]["gemm"] for layer in report.layers)
    assert busy["GEMM"].mean() * report.cycles >= gemm


def test_pandas_has_a_row_for_each_layer(report):
    pytest.importorskip("pandas")
    frame = report.to_pandas()
    assert list(frame["name"]) == [layer["name"] for layer in report.layers]
    assert frame["cycles"].sum() == report.cycles == frame.attrs["cycles"]
    assert frame["spend_gemm"].iloc[0] == report.layers[0]["spend"]["gemm"]


def test_the_timeline_has_an_axis_for_layers_and_each_unit(report, tmp_path):
    pytest.importorskip("matplotlib")
    figure = report.timeline()
    assert [axis.get_ylabel() for axis in figure.axes] == ["layers", *report.busy()]
    figure.savefig(tmp_path / "timeline.png")
    assert (tmp_path / "timeline.png").read_bytes().startswith(b"\x89PNG")


def test_a_timeline_shows_itself_and_names_its_layers(report):
    pytest.importorskip("matplotlib")
    figure = report.timeline()
    picture = figure._repr_png_()
    assert picture.startswith(b"\x89PNG") and len(picture) > 10_000
    written = {text.get_text().rstrip("…") for text in figure.axes[0].texts}
    wide = [layer["name"] for layer in report.layers if layer["cycles"] > 0.02 * report.cycles]
    assert len(wide) > 10
    for name in wide:
        assert any(name.startswith(text) for text in written if text), name


def test_a_notebooks_cell_shows_the_timeline():
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    code = """
import numpy as np, pyvta
session = pyvta.InferenceSession("demo", "cycle", timing_only=True)
session.run(None, {"input": np.zeros((1, 3, 32, 32), np.float32)})
session.report.timeline()
"""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    nbclient.NotebookClient(notebook, timeout=300, kernel_name="python3").execute()
    [shown] = [output for output in notebook.cells[0].outputs if output.output_type == "execute_result"]
    assert len(shown.data["image/png"]) > 10_000


def test_layers_of_the_host_have_cycles_too():
    random = np.random.default_rng(1)
    constants = {"v": random.standard_normal((8, 3, 3, 3)).astype(np.float32), "w": np.eye(8, dtype=np.float32)[:, :, None, None]}
    nodes = [("Conv", ["x", "v"], ["c"], {}), ("Softmax", ["c"], ["s"], {"axis": 1}), ("Conv", ["s", "w"], ["y"], {})]
    model = onnx_bytes(nodes, {"x": ("f", [1, 3, 8, 8])}, {"y": ("f", [1, 8, 6, 6])}, constants)
    x = random.standard_normal((4, 3, 8, 8)).astype(np.float32)
    session = pyvta.InferenceSession(pyvta.quantize(model, x), "cycle", allow_host=True)
    session.run(None, {"x": x[:1]})
    layers = session.report.layers
    [host] = [layer for layer in layers if "host" in layer]
    assert host["cycles"] == 0 and sum(layer["cycles"] for layer in layers) == session.report.cycles
    pytest.importorskip("matplotlib")
    assert session.report.timeline()._repr_png_()


def test_a_report_survives_pickling(report):
    again = pickle.loads(pickle.dumps(report))
    assert again.to_dict() == report.to_dict() and again.to_html() == report.to_html() and repr(again) == repr(report)
    busy = again.busy()
    for name, values in report.busy().items():
        np.testing.assert_array_equal(busy[name], values)
    assert pickle.loads(pickle.dumps(again)).stalls == report.stalls


def test_a_notebook_gets_the_page_in_a_frame(report):
    page = report.to_html()
    assert page.startswith("<!DOCTYPE html>") and "demo" in page
    frame = report._repr_html_()
    assert frame.startswith("<iframe srcdoc=") and frame.count("<") == 2
    assert "cycles" in repr(report)


@pytest.mark.parametrize("module, call", [("pandas", "to_pandas"), ("matplotlib", "timeline")])
def test_a_missing_package_is_told_with_the_extra_that_has_it(report, monkeypatch, module, call):
    for name in [module, *(m for m in sys.modules if m.startswith(module + "."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(ImportError, match=rf"{module} is missing: pip install pyvta\["):
        getattr(report, call)()
