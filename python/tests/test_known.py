"""What there is and what becomes of a network, as the command line says it."""

import importlib.metadata
import json
import pickle
import re

import numpy as np
import pytest

import pyvta
from conftest import missing, onnx_bytes


def test_models_are_those_of_the_command_line(vta):
    lines = vta("models").splitlines()
    listed = {line.split()[0]: line.split() for line in lines[1:]}
    models = pyvta.models()
    assert [model.name for model in models] == list(listed)
    for model in models:
        assert listed[model.name][1] == "x".join(map(str, model.input))
        assert int(listed[model.name][2]) == model.layers > 0
    assert pickle.loads(pickle.dumps(models)) == models
    demo = pyvta.check("demo")
    assert models[0].macs == sum(node.macs for node in demo.nodes)


def test_boards_are_those_of_the_command_line(vta):
    boards = pyvta.boards()
    assert [vars(board) for board in boards] == json.loads(vta("boards", "--json"))["boards"]
    for board in boards:
        config = pyvta.isa.Config(board=board.name)
        assert board.unit == f"{config.batch}x{config.block}x{config.block}"
        assert (board.uops, board.extensions) == (config.depth["uop"], config.extensions)


def test_devices_are_those_of_the_command_line(vta):
    told = json.loads(vta("devices", "--json"))["devices"]
    assert [{"device": x.device, "name": x.name, **x.details} for x in pyvta.devices()] == told
    assert {"sim", "cycle", "oracle"} <= {device.device for device in pyvta.devices()}


def network(kind):
    random = np.random.default_rng(3)
    constants = {"w": random.standard_normal((8, 3, 3, 3)).astype(np.float32)}
    nodes = [("Conv", ["x", "w"], ["c"], {"strides": [2, 2], "pads": [1, 1, 1, 1]}), (kind, ["c"], ["y"], {})]
    return onnx_bytes(nodes, {"x": ("f", [1, 3, 8, 8])}, {"y": ("f", [1, 8, 4, 4])}, constants)


@pytest.mark.parametrize("kind, place", [("Relu", "device"), ("Softmax", "host"), ("Det", "refused")])
def test_a_check_is_the_command_lines(kind, place, vta, tmp_path):
    (tmp_path / "m.onnx").write_bytes(network(kind))
    found = pyvta.check(tmp_path / "m.onnx")
    assert found == pyvta.check(network(kind)) if place != "refused" else not found
    assert found.nodes[-1].runs_on == place and bool(found) == (place != "refused")
    if place == "refused":
        assert found.refused == [found.nodes[-1]] and found.nodes[-1].why
        return
    told = json.loads(vta("check", tmp_path / "m.onnx", "--json"))["network"]
    assert found.is_float == told["float"] and len(found.nodes) == len(told["nodes"])
    for mine, theirs in zip(found.nodes, told["nodes"], strict=True):
        assert (mine.name, mine.operator, mine.shape, mine.macs, mine.runs_on) == tuple(
            theirs[key] for key in ("name", "operator", "shape", "macs", "runs_on")
        )
        assert mine.why == theirs.get("why", "")
        assert mine.attributes == theirs["attributes"]
    assert found.nodes[0].attributes["stride"] == [2, 2]
    assert pickle.loads(pickle.dumps(found)) == found and found.to_dict()["unread"] == 0


def test_a_cut_keeps_what_can_be_computed(tmp_path):
    refused = network("Det")
    found = pyvta.check(refused)
    assert found.cut == (["x"], ["c"]) and pyvta.check(network("Relu")).cut is None
    part = pyvta.cut(refused, *found.cut)
    assert pyvta.check(part) and [node.operator for node in pyvta.check(part).nodes] == ["Conv"]
    (tmp_path / "m.onnx").write_bytes(refused)
    assert part == pyvta.cut(tmp_path / "m.onnx", outputs="c") == pyvta.cut(refused, inputs=["x"], outputs=("c",))
    with pytest.raises(pyvta.UsageError, match="no value 'cc'; did you mean c"):
        pyvta.cut(refused, outputs="cc")
    with pytest.raises(pyvta.UsageError, match="y depends on x, which is not among the inputs"):
        pyvta.cut(two_inputs(), inputs="z", outputs="y")
    with pytest.raises(TypeError):
        pyvta.cut(refused, outputs=3)


def two_inputs():
    shape = ("f", [1, 3, 8, 8])
    return onnx_bytes([("Add", ["x", "z"], ["y"], {})], {"x": shape, "z": shape}, {"y": shape}, {})


def test_a_compiled_network_knows_its_nodes():
    compiled = pyvta.compile("demo")
    convolutions = [node for node in compiled.nodes if "conv" in node["kind"]]
    assert {node["layer"] for node in compiled.nodes} <= set(compiled.layers) and len(convolutions) > 15
    checked = {node.name: node for node in pyvta.check("demo").nodes}
    for node in convolutions:
        assert node["output"]["shape"] and node["inputs"][0]["shape"]
        if node["name"] in checked:
            assert node["attributes"]["stride"] == checked[node["name"]].attributes["stride"]


def test_a_machine_that_lacks_what_a_network_needs_is_told():
    config = {"LOG_INP_BUFF_SIZE": 4}
    assert not pyvta.check("demo", config=config) and pyvta.check("demo", config=config).refused
    assert pyvta.check("demo", board="pynq", hazards=True).hazards == []
    with pytest.raises(pyvta.FileError):
        pyvta.check("no/such.onnx")
    with pytest.raises(TypeError, match="no option 'devise'"):
        pyvta.check("demo", devise="sim")


def test_the_wheel_says_what_it_is():
    try:
        told = importlib.metadata.metadata("pyvta")
    except importlib.metadata.PackageNotFoundError:
        missing("pyvta runs from its source folder: no wheel was installed")
    assert told["License-Expression"] == "Apache-2.0" and told.get_all("Project-URL")
    assert re.search("int8", told["Description"] or told.get_payload())
    files = {file.name for file in importlib.metadata.files("pyvta")}
    assert {"LICENSE", "THIRD-PARTY.txt", "py.typed", "_pyvta.pyi"} <= files
