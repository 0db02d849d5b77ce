"""Where cycles go: the figures of the command line, as Python likes them."""

import json
import sys

import numpy as np
import pytest

import pyvta
from conftest import pictures


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
