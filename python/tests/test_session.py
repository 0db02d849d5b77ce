"""Arrays in, arrays out: what onnxruntime's users expect of a session."""

import pickle

import numpy as np
import pytest

import pyvta
from conftest import pictures


def test_inputs_and_outputs_are_described_as_onnxruntime_does(demo):
    [taken], [given] = demo.get_inputs(), demo.get_outputs()
    assert (taken.name, taken.shape, taken.type) == ("input", ["batch", 3, 32, 32], "tensor(float)")
    assert (given.name, given.shape, given.type) == ("logits", ["batch", 10], "tensor(float)")
    assert taken.scale > 0 and -128 <= taken.zero <= 127


@pytest.mark.parametrize("count", [0, 1, 5])
def test_outputs_have_the_models_unit_and_rank(demo, count):
    x = pictures(count)
    [real] = demo.run(None, {"input": x})
    [steps] = demo.run_quantized(["logits"], {"input": x})
    assert (real.shape, real.dtype, steps.dtype) == ((count, 10), np.float32, np.int8)
    [given] = demo.get_outputs()
    expected = (steps.astype(np.float32) - given.zero) * np.float32(given.scale)
    np.testing.assert_array_equal(real, expected)


def test_steps_of_the_input_are_the_same_input(demo):
    x, [taken] = pictures(3), demo.get_inputs()
    steps = np.clip(np.rint(x / np.float32(taken.scale)) + taken.zero, -128, 127).astype(np.int8)
    [expected], [found] = demo.run(None, {"input": x}), demo.run_quantized(None, {"input": steps})
    [given] = demo.get_outputs()
    np.testing.assert_array_equal(expected, (found.astype(np.float32) - given.zero) * np.float32(given.scale))


def test_arrays_in_any_order_and_float_type_are_the_same_pictures(demo):
    x = pictures(4)
    [expected] = demo.run(None, {"input": x})
    unaligned = np.frombuffer(b"." + x.tobytes(), np.uint8)[1:].view(np.float32).reshape(x.shape)
    assert not unaligned.flags.aligned
    read_only = x.copy()
    read_only.flags.writeable = False
    wide = np.zeros((4, 3, 32, 64), np.float32)
    wide[..., ::2] = x
    for other in [
        np.asfortranarray(x),
        x.astype(np.float64),
        x.astype(">f4"),
        unaligned,
        read_only,
        wide[..., ::2],
        x.tolist(),
    ]:
        np.testing.assert_array_equal(demo.run(None, {"input": other})[0], expected)
    halves = x.astype(np.float16)
    np.testing.assert_array_equal(
        demo.run(None, {"input": halves})[0], demo.run(None, {"input": halves.astype(np.float32)})[0]
    )


def test_a_session_survives_pickling(demo):
    x = pictures(2)
    [expected] = demo.run(None, {"input": x})
    other = pyvta.InferenceSession("demo", config={"LOG_BLOCK": 5}, threads=1)
    for session in (demo, other):
        again = pickle.loads(pickle.dumps(session))
        np.testing.assert_array_equal(again.run(None, {"input": x})[0], expected)
        assert repr(again) == repr(session)


def test_an_outputs_name_may_stand_alone(demo):
    x = {"input": pictures(1)}
    [expected], [found] = demo.run(["logits"], x), demo.run("logits", x)
    np.testing.assert_array_equal(found, expected)
    for names in (3, [3], b"logits"):
        with pytest.raises(TypeError, match="`output_names` is None, a name or a list of names, not "):
            demo.run(names, x)
    for feed in (None, x["input"], [x["input"]]):
        with pytest.raises(TypeError, match="inputs are a dict"):
            demo.run(None, feed)
    with pytest.raises(TypeError, match="an input's name. is text, not int"):
        demo.run(None, {0: x["input"]})


def test_numbers_may_be_numpys(demo):
    x, three = pictures(2), np.int64(3)
    [expected] = demo.run(None, {"input": x})
    config = {"LOG_BLOCK": np.uint8(4), "LOG_BATCH": np.array(0), "EXTENSIONS": np.array(["ACC8", "MUL"])}
    session = pyvta.InferenceSession("demo", config=config, threads=three, batch=np.int32(1), allow_host=np.bool_(True))
    np.testing.assert_array_equal(session.run(None, {"input": x})[0], expected)
    assert pickle.loads(pickle.dumps(session)).model == "demo" == session.model


def test_names_that_nothing_has_are_told(demo):
    with pytest.raises(pyvta.InputError, match="no input 'x' \\(there is input\\)"):
        demo.run(None, {"x": pictures(1)})
    with pytest.raises(pyvta.InputError, match="input 'input' isn't given"):
        demo.run(None, {})
    with pytest.raises(pyvta.InputError, match="no output 'y' \\(there is logits\\)"):
        demo.run(["y"], {"input": pictures(1)})
    with pytest.raises(TypeError, match="no option 'thread'; did you mean threads?"):
        pyvta.InferenceSession("demo", thread=1)


@pytest.mark.parametrize(
    "value, text",
    [
        (np.zeros((3, 32, 32), np.float32), r"shape \[3, 32, 32\]; the shape is \[batch, 3, 32, 32\]"),
        (np.zeros((1, 3, 32, 32), np.int8), "takes float32, not int8"),
        (np.zeros((1, 3, 32, 32), np.complex64), "takes float32, not complex64"),
        (np.full((1, 3, 32, 32), np.nan, np.float32), "value 0: NaN"),
        ("text", "takes float32, not str"),
        (None, "takes float32, not NoneType"),
    ],
)
def test_arrays_of_another_kind_are_refused(demo, value, text):
    with pytest.raises(pyvta.InputError, match=text):
        demo.run(None, {"input": value})
