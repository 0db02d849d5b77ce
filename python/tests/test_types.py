"""Inputs and outputs of other types than float32, and without a batch."""

import numpy as np
import pytest

import pyvta
from conftest import onnx_bytes

STEP, OUT_STEP = np.float32(0.05), np.float32(0.2)
ZEROS = {"uint8": 120, "int8": -8}
OUT_ZEROS = {"uint8": 100, "int8": 7}


def convolution(taken, given):
    """An int8 convolution whose input and output are as they are stored, or real."""
    stored = "uint8" if taken == "f" else taken
    stored_out = "uint8" if given == "f" else given
    constants = {
        "sx": STEP,
        "zx": np.array(ZEROS[stored], stored),
        "w": np.random.default_rng(0).integers(-50, 50, (16, 3, 3, 3)).astype(np.int8),
        "sw": np.float32(0.01),
        "zw": np.int8(0),
        "sy": OUT_STEP,
        "zy": np.array(OUT_ZEROS[stored_out], stored_out),
    }
    constants = {name: np.asarray(value) for name, value in constants.items()}
    nodes = [] if taken != "f" else [("QuantizeLinear", ["x", "sx", "zx"], ["xq"], {})]
    nodes += [
        ("DequantizeLinear", ["x" if taken != "f" else "xq", "sx", "zx"], ["xd"], {}),
        ("DequantizeLinear", ["w", "sw", "zw"], ["wd"], {}),
        ("Conv", ["xd", "wd"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("QuantizeLinear", ["c", "sy", "zy"], ["y"], {}),
    ]
    nodes += [] if given != "f" else [("DequantizeLinear", ["y", "sy", "zy"], ["z"], {})]
    outputs = {"z" if given == "f" else "y": (given, [1, 16, 8, 8])}
    return onnx_bytes(nodes, {"x": (taken, [1, 3, 8, 8])}, outputs, constants)


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_stored_inputs_are_the_real_values_that_they_stand_for(kind):
    bounds = np.iinfo(kind)
    x = np.random.default_rng(1).integers(bounds.min, bounds.max + 1, (4, 3, 8, 8)).astype(kind)
    session = pyvta.InferenceSession(convolution(kind, "f"))
    assert session.get_inputs()[0].type == f"tensor({kind})"
    [found] = session.run(None, {"x": x})
    # The other model stores the same steps as uint8.
    real = (x.astype(np.int32) - ZEROS[kind]).astype(np.float32) * STEP
    [expected] = pyvta.InferenceSession(convolution("f", "f")).run(None, {"x": real})
    np.testing.assert_array_equal(found, expected)
    assert len(np.unique(found)) > 20
    other = "int8" if kind == "uint8" else "uint8"
    for wrong in (x.astype(other), x.astype(np.int64), real):
        with pytest.raises(pyvta.InputError, match=f"takes {kind}, not {wrong.dtype}"):
            session.run(None, {"x": wrong})


@pytest.mark.parametrize("kind", ["uint8", "int8"])
def test_stored_outputs_are_given_as_the_model_stores_them(kind):
    x = np.random.default_rng(2).standard_normal((3, 3, 8, 8)).astype(np.float32)
    session = pyvta.InferenceSession(convolution("f", kind))
    assert session.get_outputs()[0].type == f"tensor({kind})"
    [found] = session.run(None, {"x": x})
    assert found.dtype == kind and found.shape == (3, 16, 8, 8)
    [given] = session.get_outputs()
    [steps] = session.run_quantized(None, {"x": x})
    np.testing.assert_array_equal(found.astype(np.int32) - OUT_ZEROS[kind], steps.astype(np.int32) - given.zero)
    [real] = pyvta.InferenceSession(convolution("f", "f")).run(None, {"x": x})
    if kind == "uint8":
        expected = (found.astype(np.float32) - OUT_ZEROS[kind]) * OUT_STEP
        np.testing.assert_allclose(real, expected, rtol=1e-6, atol=1e-6)


def tokens(shape):
    random = np.random.default_rng(1)
    constants = {
        "t": random.standard_normal((10, 16)).astype(np.float32),
        "w": random.standard_normal((16, 5)).astype(np.float32),
    }
    nodes = [("Gather", ["t", "i"], ["g"], {}), ("MatMul", ["g", "w"], ["y"], {})]
    model = onnx_bytes(nodes, {"i": ("i", shape)}, {"y": ("f", [*shape, 5])}, constants)
    calibration = np.arange(8).reshape(2, 4)
    return pyvta.quantize(model, calibration if shape == [1, 4] else list(calibration))


def test_whole_numbers_of_any_width_are_indices():
    session = pyvta.InferenceSession(tokens([1, 4]), allow_host=True)
    assert (session.get_inputs()[0].type, session.get_inputs()[0].shape) == ("tensor(int64)", ["batch", 4])
    i = np.array([[1, 2, 3, 4], [9, 8, 0, -1]])
    [expected] = session.run(None, {"i": i})
    assert expected.shape == (2, 4, 5)
    np.testing.assert_array_equal(expected[1, 0], expected[1, 3])
    for other in (i.astype(np.int32), i.astype(np.int16), np.asfortranarray(i), i.tolist()):
        np.testing.assert_array_equal(session.run(None, {"i": other})[0], expected)
    with pytest.raises(pyvta.InputError, match="takes int64, not float32"):
        session.run(None, {"i": i.astype(np.float32)})


def test_a_model_without_a_batch_takes_one_image_or_several():
    session = pyvta.InferenceSession(tokens([4]), allow_host=True)
    assert session.get_inputs()[0].shape == [4] and session.get_outputs()[0].shape == [4, 5]
    [one] = session.run(None, {"i": np.array([1, 2, 3, 4])})
    [batch] = session.run(None, {"i": np.array([[1, 2, 3, 4]])})
    [several] = session.run(None, {"i": np.array([[1, 2, 3, 4], [5, 6, 7, 8]])})
    assert (one.shape, batch.shape, several.shape) == ((4, 5), (1, 4, 5), (2, 4, 5))
    np.testing.assert_array_equal(one, batch[0])
    np.testing.assert_array_equal(one, several[0])
    with pytest.raises(pyvta.InputError, match=r"shape \[3\]; the shape is \[4\]"):
        session.run(None, {"i": np.array([1, 2, 3])})
