"""The command line's results, bit for bit."""

import numpy as np
import pytest

import pyvta
from conftest import pictures

SHARED = [
    "resnet20_cifar10_qdq_int8.onnx",
    "mlperf_resnet8_qdq_int8_perchan.onnx",
    "own/resnet20_cifar10_qdq_int8_perchan.onnx",
]


def compare(vta, folder, model, *options, **of_python):
    x = pictures(7)
    np.save(folder / "x.npy", x)
    vta("run", model, "--input", folder / "x.npy", "--output", folder / "y.npy", *options)
    expected = np.load(folder / "y.npy")
    session = pyvta.InferenceSession(model, **of_python)
    [found] = session.run(None, {session.get_inputs()[0].name: x})
    np.testing.assert_array_equal(found.reshape(len(x), -1), expected)
    assert len(np.unique(found)) > 5


@pytest.mark.parametrize("device", ["sim", "cycle", "oracle"])
def test_the_demo_on_every_simulator(vta, tmp_path, device):
    compare(vta, tmp_path, "demo", "--device", device, device=device)


@pytest.mark.parametrize("model", SHARED)
def test_shared_models(vta, shared, tmp_path, model):
    compare(vta, tmp_path, shared / "models" / model)


def test_options_are_those_of_the_command_line(vta, shared, tmp_path):
    model = shared / "models" / SHARED[0]
    (tmp_path / "c.json").write_text('{"LOG_BLOCK": 5}')
    options = ["--config", tmp_path / "c.json", "--requant", "fast"]
    compare(vta, tmp_path, model, *options, config={"LOG_BLOCK": 5}, requant="fast")


def test_labels_are_near_those_of_onnxruntime(shared):
    """The shared model's own logits by onnxruntime, on the same 200 images."""
    with np.load(shared / "models/cifar10_test200.npz") as data:
        images = data["images"]
    with np.load(shared / "models/reference_logits_test200.npz") as data:
        names = [name for name in data if "resnet20" in name and "qdq" in name]
        logits = data[names[0]]
    mean, std = np.float32([0.4914, 0.4822, 0.4465]), np.float32([0.2470, 0.2435, 0.2616])
    x = (images / np.float32(255) - mean[:, None, None]) / std[:, None, None]
    session = pyvta.InferenceSession(shared / "models" / SHARED[0])
    [found] = session.run(None, {session.get_inputs()[0].name: x.astype(np.float32)})
    assert found.shape == logits.shape
    assert (found.argmax(1) == logits.argmax(1)).mean() > 0.98
