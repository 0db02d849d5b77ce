"""Every class of exception, by a cause of its own."""

import errno
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest

import pyvta
from conftest import onnx_bytes, pictures


def first_run(**options):
    return pyvta.InferenceSession("demo", **options).run(None, {"input": pictures(1)})


@pytest.mark.parametrize(
    "error, base, work, text",
    [
        (pyvta.UsageError, ValueError, lambda: first_run(device="simm"), "no device 'simm'.*did you mean sim"),
        (pyvta.UsageError, ValueError, lambda: first_run(threads=0), "`threads` must be at least 1"),
        (pyvta.UsageError, ValueError, lambda: first_run(timing_only=True), "`timing_only` needs `device` cycle"),
        (pyvta.UsageError, ValueError, lambda: first_run(input_shapes=(1, 3, 32, 32)), "`input_shapes` is for ONNX"),
        (pyvta.UsageError, ValueError, lambda: first_run(input_shapes={"input": (0, 3)}), "at least 1"),
        (pyvta.UsageError, ValueError, lambda: first_run(requant="exact"), "`requant`: "),
        (pyvta.UsageError, ValueError, lambda: first_run(config={"LOG_BLOCK": float("inf")}), "`config`: "),
        (pyvta.InputError, ValueError, lambda: first_run(config={"LOG_BLOCK": 99}), "LOG_BLOCK is 99"),
        (pyvta.InputError, ValueError, lambda: first_run(config={"LOG_BLOCKS": 4}), "LOG_BLOCKS"),
        (pyvta.ModelError, Exception, lambda: pyvta.InferenceSession(b"no model"), "ONNX: not a model file"),
        (pyvta.DeviceError, Exception, lambda: first_run(device="opencl:no-such"), "no OpenCL device|OpenCL"),
        (pyvta.FileError, OSError, lambda: pyvta.InferenceSession("no/model.onnx"), "No such file.*no/model.onnx"),
        (pyvta.FileError, OSError, lambda: first_run(config="no/config.json"), "No such file.*no/config.json"),
        (pyvta.UsageError, ValueError, lambda: pyvta.InferenceSession("Demo"), "`pyvta.models` lists those"),
        (TypeError, Exception, lambda: pyvta.InferenceSession(5), "a model is a path.*not int"),
        (TypeError, Exception, lambda: first_run(config=[1]), "`config` is a path or a dict"),
        (TypeError, Exception, lambda: pyvta.compile("demo", device="sim"), "no option 'device'"),
        (TypeError, Exception, lambda: pyvta.quantize("demo", "images"), "read the images first"),
        (TypeError, Exception, lambda: pyvta.quantize("demo", None), "read the images first"),
        (pyvta.UsageError, ValueError, lambda: pyvta.InferenceSession("demo", "cylce"), "no device 'cylce'.*cycle"),
        (pyvta.UsageError, ValueError, lambda: pyvta.InferenceSession("demo", "sim,"), "between commas"),
        (pyvta.UsageError, ValueError, lambda: first_run(threads=-1), "`threads` is -1, but it must be at least 0"),
        (pyvta.UsageError, ValueError, lambda: first_run(threads=10**30), "`threads` is 10+, but it must be at most"),
        (TypeError, Exception, lambda: first_run(threads="4"), "`threads` is a whole number, not str"),
        (TypeError, Exception, lambda: first_run(threads=True), "`threads` is a whole number, not bool"),
        (TypeError, Exception, lambda: first_run(allow_host="yes"), "`allow_host` is True or False, not str"),
        (TypeError, Exception, lambda: first_run(device=3), "`device` is text, not int"),
        (TypeError, Exception, lambda: first_run(tiles=3), "`tiles` is a path, not int"),
        (TypeError, Exception, lambda: first_run(sess_options=None), "no option 'sess_options'"),
        (TypeError, Exception, lambda: first_run(config={1: 2}), "`config` is a dict with names for keys, not int"),
        (TypeError, Exception, lambda: first_run(config={"LOG_BLOCK": object()}), "`LOG_BLOCK` is a number, text"),
        (pyvta.UsageError, ValueError, lambda: first_run(input_shapes=(1, -3)), "`input_shapes` is -3"),
        (pyvta.UsageError, ValueError, lambda: pyvta.quantize("demo", [], limit=-1), "`limit` is -1"),
    ],
)
def test_an_error_has_its_cause_for_a_class_and_says_what_and_where(error, base, work, text):
    with pytest.raises(error, match=text) as raised:
        work()
    assert isinstance(raised.value, base)
    assert issubclass(error, pyvta.VtaError) or error is TypeError


def test_a_float_model_must_be_quantised(float_model):
    for work in (pyvta.InferenceSession, pyvta.compile):
        with pytest.raises(pyvta.FloatModelError, match="is a float model: run `pyvta.quantize` first$"):
            work(float_model)


def test_what_cannot_be_written_is_a_file_error(tmp_path):
    compiled = pyvta.compile("demo")
    with pytest.raises(pyvta.FileError, match="no/model.vta") as raised:
        compiled.save(tmp_path / "no/model.vta")
    assert (raised.value.errno, raised.value.filename) == (errno.ENOENT, str(tmp_path / "no/model.vta"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["no/model.onnx", "."])
def test_a_file_error_says_what_the_system_does(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OSError) as expected:
        open(name, "rb")
    with pytest.raises(pyvta.FileError) as raised:
        pyvta.InferenceSession(name)
    for attribute in ("errno", "strerror", "filename"):
        assert getattr(raised.value, attribute) == getattr(expected.value, attribute)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (str(again), again.errno) == (str(raised.value), raised.value.errno)


def test_a_layer_of_the_host_that_fails_is_a_run_error_and_the_session_goes_on():
    constants = {"w": np.ones((1, 1, 1, 1), np.float32), "two": np.array(2), "table": np.ones(1, np.float32)}
    nodes = [
        ("Conv", ["x", "w"], ["c"], {}),
        ("Cast", ["c"], ["k"], {"to": 7}),
        ("Sub", ["k", "two"], ["i"], {}),
        ("Gather", ["table", "i"], ["g"], {}),
        ("Conv", ["g", "w"], ["y"], {}),
    ]
    shape = ("f", [1, 1, 4, 4])
    model = onnx_bytes(nodes, {"x": shape}, {"y": shape}, constants)
    x = np.random.default_rng(0).uniform(1, 2.9, (8, 1, 4, 4)).astype(np.float32)
    quantized = pyvta.quantize(model, x, bias_correction=False, equalize=False)
    with pytest.raises(pyvta.ModelError, match="host"):
        pyvta.InferenceSession(quantized)
    session = pyvta.InferenceSession(quantized, allow_host=True)
    with pytest.raises(pyvta.RunError, match="Index -2 is out of range") as raised:
        session.run(None, {"x": 0 * x})
    assert isinstance(raised.value, RuntimeError)
    [y] = session.run(None, {"x": x})
    assert y.shape == x.shape and (y == y[0, 0, 0, 0]).all()


LITTLE_MEMORY = """
import resource, pyvta
pages = int(open("/proc/self/statm").read().split()[0])
limit = pages * resource.getpagesize() + (100 << 20)
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    pyvta.InferenceSession("zoo:resnet50", threads=1)
except MemoryError as error:
    assert type(error) is pyvta.MemoryLimitError, type(error)
    print(error)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="limits of address space")
def test_work_without_room_is_a_memory_error():
    # A thread of numpy's that starts while the limit is taken would raise it, and one of ours take a part of it.
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}
    done = subprocess.run([sys.executable, "-c", LITTLE_MEMORY], capture_output=True, text=True, env=environment)
    assert "zoo:resnet50 takes about" in done.stdout, done.stderr


def test_a_warning_may_be_made_an_error():
    with pytest.warns(pyvta.VtaWarning, match="`timing` de10 only takes that board's time"):
        pyvta.InferenceSession("demo", device="cycle", timing="de10")
    with pytest.raises(pyvta.VtaWarning):
        pyvta.InferenceSession("demo", device="cycle", timing="de10")
