"""What tests share: models, images, the command line."""

import os
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest

import pyvta

ROOT = Path(__file__).parents[2]

# Whoever starts the suite in the background may have it ignore SIGINT, which Python then inherits.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pictures(count, seed=0, shape=(3, 32, 32)):
    """Seeded noise, float32."""
    return np.random.default_rng(seed).standard_normal((count, *shape)).astype(np.float32)


def missing(text):
    """Skips a test; fails it where skipping must not go unseen."""
    if os.environ.get("CI"):
        pytest.fail(text)
    pytest.skip(text)


@pytest.fixture(scope="session")
def demo():
    return pyvta.InferenceSession("demo")


@pytest.fixture(scope="session")
def float_model():
    return ROOT / "models/demo/resnet20_f32.onnx"


@pytest.fixture(scope="session")
def shared():
    """The folder of recorded runs and models."""
    folder = Path(os.environ.get("VTA_SHARED", ROOT.parent / "shared"))
    if not folder.is_dir():
        missing(f"no test data at {folder} (set VTA_SHARED)")
    return folder


@pytest.fixture(scope="session")
def vta():
    """Runs the command line, which VTA_BIN names or target/release has."""
    binary = Path(os.environ.get("VTA_BIN", ROOT / "target/release/vta"))
    if not binary.is_file():
        missing(f"no command line at {binary} (set VTA_BIN)")

    def run(*arguments):
        arguments = [str(argument) for argument in arguments]
        return subprocess.run([binary, *arguments], check=True, capture_output=True, text=True).stdout

    return run


def onnx_bytes(nodes, inputs, outputs, constants):
    """An ONNX model: inputs and outputs by name with their type and dimensions, constants by name."""
    onnx = pytest.importorskip("onnx")
    proto = onnx.TensorProto
    kinds = {"f": proto.FLOAT, "i": proto.INT64, "uint8": proto.UINT8, "int8": proto.INT8}

    def infos(ports):
        return [onnx.helper.make_tensor_value_info(name, kinds[kind], shape) for name, (kind, shape) in ports.items()]

    weights = [onnx.numpy_helper.from_array(value, name) for name, value in constants.items()]
    nodes = [onnx.helper.make_node(kind, *ports, **attributes) for kind, *ports, attributes in nodes]
    graph = onnx.helper.make_graph(nodes, "test", infos(inputs), infos(outputs), weights)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    return model.SerializeToString()


@pytest.fixture(scope="session")
def tiny_model():
    """A convolution and a dense layer of 3x8x8, float."""
    random = np.random.default_rng(5)
    constants = {
        "w": random.standard_normal((16, 3, 3, 3)).astype(np.float32) / 5,
        "v": random.standard_normal((16, 5)).astype(np.float32) / 4,
        "b": random.standard_normal(5).astype(np.float32),
    }
    nodes = [
        ("Conv", ["x", "w"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["c"], ["r"], {}),
        ("GlobalAveragePool", ["r"], ["p"], {}),
        ("Flatten", ["p"], ["f"], {}),
        ("Gemm", ["f", "v", "b"], ["y"], {}),
    ]
    return onnx_bytes(nodes, {"x": ("f", ["n", 3, 8, 8])}, {"y": ("f", ["n", 5])}, constants)


@pytest.fixture(scope="session")
def tiny(tiny_model):
    """It in int8."""
    return pyvta.quantize(tiny_model, pictures(16, shape=(3, 8, 8)))
