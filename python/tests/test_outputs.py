"""Outputs have the model's names, dimensions and types, whatever tensors of the device they are."""

import numpy as np
import pytest
from conftest import onnx_bytes

import pyvta


@pytest.fixture(scope="module")
def model():
    """A convolution whose rounded output is three of the model's, its steps one more."""
    random = np.random.default_rng(3)
    constants = {
        "w8": random.integers(-99, 99, (8, 3, 3, 3), np.int8),
        "ws": np.float32(2**-9),
        "s": np.float32(2**-5),
        "z": np.int8(0),
        "flat": np.array([1, 32, 16], np.int64),
    }
    nodes = [
        ("QuantizeLinear", ["x", "s", "z"], ["x8"], {}),
        ("DequantizeLinear", ["x8", "s", "z"], ["xr"], {}),
        ("DequantizeLinear", ["w8", "ws", "z"], ["w"], {}),
        ("Conv", ["xr", "w"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("QuantizeLinear", ["c", "s", "z"], ["steps"], {}),
        ("DequantizeLinear", ["steps", "s", "z"], ["y"], {}),
        ("Identity", ["y"], ["same"], {}),
        ("Flatten", ["y"], ["vector"], {}),
        ("Reshape", ["y", "flat"], ["tokens"], {}),
    ]
    outputs = {
        "y": ("f", [1, 8, 8, 8]),
        "same": ("f", [1, 8, 8, 8]),
        "vector": ("f", [1, 512]),
        "tokens": ("f", [1, 32, 16]),
    }
    return onnx_bytes(nodes, {"x": ("f", [1, 3, 8, 8])}, outputs, constants)


def test_outputs_that_are_one_tensor_keep_their_names_and_shapes(model):
    session = pyvta.InferenceSession(model)
    names = ["y", "same", "vector", "tokens"]
    assert [output.name for output in session.get_outputs()] == names
    shapes = [output.shape[1:] for output in session.get_outputs()]
    assert shapes == [[8, 8, 8], [8, 8, 8], [512], [32, 16]]
    x = np.random.default_rng(4).standard_normal((3, 3, 8, 8)).astype(np.float32)
    y, same, vector, tokens = session.run(None, {"x": x})
    assert (y.shape, same.shape, vector.shape, tokens.shape) == ((3, 8, 8, 8), (3, 8, 8, 8), (3, 512), (3, 32, 16))
    assert (y == same).all() and (y.ravel() == vector.ravel()).all() and (y.ravel() == tokens.ravel()).all()
    [again] = session.run(["same"], {"x": x})
    assert (again == y).all()
    ort = pytest.importorskip("onnxruntime")
    peer = ort.InferenceSession(model, providers=["CPUExecutionProvider"])
    for output, own in zip(peer.get_outputs(), session.get_outputs()):
        assert (output.name, output.type, output.shape[1:]) == (own.name, own.type, own.shape[1:])
    for image, found in zip(x, y):
        assert abs(peer.run(["y"], {"x": image[None]})[0][0] - found).max() <= 2**-5


def test_a_timing_needs_no_images(model):
    session = pyvta.InferenceSession(model, "cycle", timing_only=True)
    session.run(None, {})
    blank = session.report.cycles
    x = np.ones((1, 3, 8, 8), np.float32)
    other = pyvta.InferenceSession(model, "cycle", timing_only=True)
    other.run(None, {"x": x})
    assert other.report.cycles == blank
    with pytest.raises(pyvta.InputError, match="'x' isn't given"):
        pyvta.InferenceSession(model, "cycle").run(None, {})
