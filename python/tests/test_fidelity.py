"""How near an int8 model is to the float one, beside what onnxruntime finds on the same files and images."""

import numpy as np
import pytest

import pyvta
from conftest import onnx_bytes, pictures

onnxruntime = pytest.importorskip("onnxruntime")


def outputs(model, images):
    """Of each image, alone."""
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return [session.run(None, {name: image[None]}) for image in images]


def figures(float_values, int8_values):
    """Cosine, dB and agreement of one output."""
    cosines = [a.ravel() @ b.ravel() / np.linalg.norm(a) / np.linalg.norm(b) for a, b in zip(*both(float_values, int8_values), strict=True)]
    signal = sum((a**2).sum() for a in both(float_values, int8_values)[0])
    noise = sum(((a - b) ** 2).sum() for a, b in zip(*both(float_values, int8_values), strict=True))
    agree = [a.argmax() == b.argmax() for a, b in zip(float_values, int8_values, strict=True)]
    return np.mean(cosines), 10 * np.log10(signal / noise), np.mean(agree)


def both(*values):
    return [[value.astype(np.float64) for value in one] for one in values]


def test_onnxruntime_finds_the_same_figures(float_model):
    images = pictures(12, seed=7)
    model = pyvta.quantize(float_model, pictures(8), held_out=images, method="mse", equalize=True)
    [found] = model.fidelity["outputs"]
    # Up to 16 are compared, and choose where something is left open.
    assert (model.images, model.fidelity["images"], model.fidelity["held_out"]) == (8, 12, 12)
    assert not model.fidelity["chosen_too"]
    of_float, of_int8 = (outputs(m, images) for m in (float_model.read_bytes(), model.to_onnx()))
    cosine, db, agreement = figures([o[0] for o in of_float], [o[0] for o in of_int8])
    assert found["cosine"] == pytest.approx(cosine, abs=1e-3)
    assert found["db"] == pytest.approx(db, abs=0.5)
    assert found["agreement"] == pytest.approx(agreement)


@pytest.fixture(scope="module")
def boxes_and_scores():
    """Boxes up to hundreds beside scores up to 1, which a last Concat joins."""
    random = np.random.default_rng(3)
    constants = {
        "w": random.standard_normal((8, 3, 1, 1)).astype(np.float32),
        "b": (300 * random.random((4, 8, 1, 1))).astype(np.float32),
        "s": (random.standard_normal((2, 8, 1, 1)) / 8).astype(np.float32),
    }
    nodes = [
        ("Conv", ["x", "w"], ["c"], {}),
        ("Relu", ["c"], ["r"], {}),
        ("Conv", ["r", "b"], ["boxes"], {}),
        ("Conv", ["r", "s"], ["t"], {}),
        ("Sigmoid", ["t"], ["scores"], {}),
        ("Concat", ["boxes", "scores"], ["y"], {"axis": 1, "name": "join"}),
    ]
    return onnx_bytes(nodes, {"x": ("f", [1, 3, 8, 8])}, {"y": ("f", [1, 6, 8, 8])}, constants)


def test_parts_that_are_far_apart_keep_their_meaning(boxes_and_scores):
    images = pictures(20, shape=(3, 8, 8))
    alone = pyvta.quantize(boxes_and_scores, images)
    assert not any(part["lost"] for part in alone.fidelity["outputs"])
    kept = pyvta.quantize(boxes_and_scores, images, keep_float="join")
    assert not any(part["lost"] for part in kept.fidelity["outputs"])
    [node] = kept.fidelity["keep_float"]
    assert node["name"] == "join" and node["us"] > 0
    fresh = pictures(5, seed=9, shape=(3, 8, 8))
    of_float, of_int8 = (outputs(m, fresh) for m in (boxes_and_scores, kept.to_onnx()))
    scores = [[o[0][:, 4:] for o in of] for of in (of_float, of_int8)]
    assert figures(*scores)[0] > 0.98


def test_as_few_nodes_as_reach_the_target_stay_in_float(boxes_and_scores):
    images = pictures(20, shape=(3, 8, 8))
    model = pyvta.quantize(boxes_and_scores, images, keep_float="AUTO", target=0.98)
    names = [node["name"] for node in model.fidelity["keep_float"]]
    assert len(names) < 6
    assert all(part["cosine"] >= 0.98 for part in model.fidelity["outputs"])


def test_names_that_there_are_not_are_refused(boxes_and_scores):
    images = pictures(4, shape=(3, 8, 8))
    with pytest.raises(pyvta.UsageError, match="no node or output 'joint'; did you mean join"):
        pyvta.quantize(boxes_and_scores, images, keep_float=["joint"])
    with pytest.raises(pyvta.UsageError, match="`held_out` 4 leaves none of 4 images"):
        pyvta.quantize(boxes_and_scores, images, held_out=4)
