"""From a float model to int8, to a bundle, and beside the reference interpreter."""

import pickle

import numpy as np
import pytest

import pyvta
from pyvta import isa
from conftest import ROOT, onnx_bytes, pictures


@pytest.fixture(scope="module")
def model(float_model):
    return pyvta.quantize(float_model, [pictures(4), pictures(3, seed=1)], method="min-max")


def test_calibration_may_come_in_any_batches(model, float_model):
    x = np.concatenate([pictures(4), pictures(3, seed=1)])
    assert (model.images, pyvta.quantize(float_model, x, limit=2).images) == (6, 2)

    def reusing():
        buffer = np.empty((1, 3, 32, 32), np.float32)
        for image in x:
            buffer[0] = image
            yield {"input": buffer}

    endless = (x[i % 7 : i % 7 + 1] for i in iter(int, 1))
    for calibration in [x, {"input": x}, [x[:1], x[1:]], reusing(), [x[:0], x]]:
        again = pyvta.quantize(float_model.read_bytes(), calibration, method="min-max")
        assert again.to_onnx() == model.to_onnx()
    assert pyvta.quantize(float_model, endless, limit=3).images == 3


def test_it_is_what_the_command_line_makes(float_model, vta, tmp_path):
    x = pictures(5)
    np.save(tmp_path / "x.npy", x)
    quantized = tmp_path / "q.onnx"
    vta("quantize", float_model, "--calibration", tmp_path / "x.npy", "--mode", "shift", "-o", quantized)
    pyvta.quantize(float_model, x, mode="shift").save(tmp_path / "p.onnx")
    of_cli, of_python = (pyvta.InferenceSession(quantized), pyvta.InferenceSession(tmp_path / "p.onnx"))
    np.testing.assert_array_equal(of_cli.run(None, {"input": x})[0], of_python.run(None, {"input": x})[0])


def test_the_report_says_what_each_layer_costs(model):
    report = model.report
    assert report is model.report and report["output_db"] > 10
    losses = [layer["output_db"] for layer in report["layers"]]
    assert losses == sorted(losses) and report["remarks"]


def test_activations_of_16_bits_are_nearer_to_float(float_model, model):
    x = pictures(7)
    wide = pyvta.quantize(float_model, x, activations="int16", bias_correction=False)
    assert (wide.fidelity["activations"], wide.fidelity["method"]) == ("int16", "min-max")
    assert (model.fidelity["activations"], wide.report["activations"]) == ("int8", "int16")
    assert wide.fidelity["outputs"][0]["db"] > model.fidelity["outputs"][0]["db"]
    with pytest.raises(pyvta.UsageError, match="no 'int4'"):
        pyvta.quantize(float_model, x, activations="int4")
    with pytest.raises(pyvta.UsageError, match="no zero points"):
        pyvta.quantize(float_model, x, activations="int16", zero_points="asymmetric")


@pytest.mark.filterwarnings("ignore:logits.*it has lost its meaning")
def test_weights_of_4_bits_take_half_the_bytes_where_the_machine_loads_them(float_model):
    x = pictures(6)
    machine = isa.Config({"EXTENSIONS": ["ACC8", "MUL", "SHL", "WGT4"]})
    size = {}
    for int4, count in [(None, 0), ("last:1", 1), ("all", None)]:
        model = pyvta.quantize(float_model, x, int4=int4)
        layers = [layer for layer in model.report["layers"] if layer["int4"]]
        assert len(layers) == count if count is not None else len(layers) > 2
        names = [layer["name"] for layer in layers]
        for config in [None, machine]:
            session = pyvta.InferenceSession(model, config=config)
            found = session.run(None, {"input": x})
            size[int4, config is not None] = len(pyvta.compile(model, config=config, preprocess="cifar10").bundle)
            if config is None:
                plain = found
        np.testing.assert_array_equal(found, plain)
    # Of 270,000 weights half a byte each, beside what other tiles change.
    saved = {packs: size[None, packs] - size["all", packs] for packs in (False, True)}
    assert abs(saved[False]) < 10_000 and 100_000 < saved[True] < 160_000
    again = pyvta.quantize(float_model, x, int4=names[-1:])
    assert [layer["name"] for layer in again.report["layers"] if layer["int4"]] == names[-1:]
    with pytest.raises(pyvta.ModelError, match="no layer with weights has this name"):
        pyvta.quantize(float_model, x, int4=["nowhere"])


def test_it_survives_pickling(model, tiny):
    assert model.report
    again = pickle.loads(pickle.dumps(model))
    assert (again.to_onnx(), again.report, repr(again)) == (model.to_onnx(), model.report, repr(model))
    fresh = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(tiny))))
    assert fresh.to_onnx() == tiny.to_onnx() and fresh.equalized == tiny.equalized


def test_a_session_shares_the_bytes_of_its_model(tiny):
    session = pyvta.InferenceSession(tiny)
    assert session.model is tiny and tiny.to_onnx() is tiny.to_onnx()


def test_batches_may_be_lists_with_labels_behind_and_tensors(model, float_model):
    class Tensor:
        """What PyTorch's tensors are to numpy, with a graph behind them."""

        def __init__(self, values, has_graph=True):
            self.values, self.has_graph, self.ndim = values, has_graph, values.ndim

        def detach(self):
            return Tensor(self.values, False)

        def cpu(self):
            return self

        def __array__(self, dtype=None, copy=None):
            assert not self.has_graph, "a tensor that requires a gradient is no array"
            return self.values

    x, y = pictures(4), pictures(3, seed=1)
    labels = [np.arange(4), np.arange(3)]
    for calibration in (
        [[x, labels[0]], [y, labels[1]]],
        [(Tensor(x), Tensor(labels[0])), (Tensor(y), Tensor(labels[1]))],
        ({"input": Tensor(images)} for images in (x, y)),
        [list(x), list(y)],
        Tensor(np.concatenate([x, y])),
    ):
        assert pyvta.quantize(float_model, calibration, method="min-max").to_onnx() == model.to_onnx()
    assert pyvta.quantize(float_model, [[x, labels[0]]], limit=np.int64(3)).images == 3


@pytest.fixture
def open_batch():
    """A network whose batch is open, with a residual sum, channels put together and a dense layer."""
    random = np.random.default_rng(9)
    of = lambda *shape: random.standard_normal(shape).astype(np.float32) / 4
    constants = {"v": of(8, 3, 3, 3), "w": of(8, 8, 3, 3), "d": of(256, 5), "b": of(5)}
    nodes = [
        ("Conv", ["x", "v"], ["c"], {"pads": [1, 1, 1, 1]}),
        ("Relu", ["c"], ["r"], {}),
        ("Conv", ["r", "w"], ["e"], {"pads": [1, 1, 1, 1]}),
        ("Add", ["e", "r"], ["a"], {}),
        ("Concat", ["a", "r"], ["k"], {"axis": 1}),
        ("MaxPool", ["k"], ["p"], {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ("Flatten", ["p"], ["f"], {}),
        ("Gemm", ["f", "d", "b"], ["y"], {}),
    ]
    return lambda batch: onnx_bytes(nodes, {"x": ("f", [batch, 3, 8, 8])}, {"y": ("f", [batch, 5])}, constants)


def test_an_open_batch_stays_open(open_batch, vta, tmp_path):
    onnx, onnxruntime = pytest.importorskip("onnx"), pytest.importorskip("onnxruntime")
    x = pictures(6, shape=(3, 8, 8))
    (tmp_path / "m.onnx").write_bytes(open_batch("images"))
    np.save(tmp_path / "x.npy", x)
    vta("quantize", tmp_path / "m.onnx", "--calibration", tmp_path / "x.npy", "-o", tmp_path / "q.onnx")
    for model in (pyvta.quantize(open_batch("images"), x).to_onnx(), (tmp_path / "q.onnx").read_bytes()):
        onnx.checker.check_model(onnx.load_from_string(model), full_check=True)
        other = onnxruntime.InferenceSession(model)
        assert other.get_inputs()[0].shape == ["images", 3, 8, 8] and other.get_outputs()[0].shape == ["images", 5]
        [together] = other.run(None, {"x": x})
        one_by_one = np.concatenate([other.run(None, {"x": image[None]})[0] for image in x])
        np.testing.assert_array_equal(together, one_by_one)
        assert len(np.unique(together)) > 6
        assert pyvta.InferenceSession(model).run(None, {"x": x})[0].shape == (6, 5)
    fixed = onnxruntime.InferenceSession(pyvta.quantize(open_batch(1), x).to_onnx())
    assert fixed.get_inputs()[0].shape == [1, 3, 8, 8]


def test_a_session_takes_it_in_every_form(model, tmp_path):
    x = pictures(2)
    model.save(tmp_path / "q.onnx")
    compiled = pyvta.compile(model, preprocess="cifar10")
    assert compiled.save(tmp_path / "q.vta") == (tmp_path / "q.vta").stat().st_size
    assert compiled.host_ops == 0 and compiled.config["LOG_BLOCK"] == 4 and len(compiled.layers) > 20
    again = pickle.loads(pickle.dumps(compiled))
    assert again == compiled and again.bundle == (tmp_path / "q.vta").read_bytes()
    forms = [model, model.to_onnx(), tmp_path / "q.onnx", str(tmp_path / "q.vta")]
    sessions = [pyvta.InferenceSession(form) for form in forms]
    expected = sessions[0].run(None, {"input": x})[0]
    for session in sessions[1:]:
        np.testing.assert_array_equal(session.run(None, {"input": x})[0], expected)
        assert repr(session.get_outputs()) == repr(sessions[0].get_outputs())


def test_a_model_that_onnx_has_read_is_a_model(model):
    onnx = pytest.importorskip("onnx")
    session = pyvta.InferenceSession(onnx.load_from_string(model.to_onnx()))
    assert session.get_inputs()[0].shape == ["batch", 3, 32, 32]


def test_remarks_are_warnings(float_model, model):
    with pytest.warns(pyvta.VtaWarning, match="assuming `preprocess` imagenet"):
        pyvta.compile(model)


def test_devices_are_compared_layer_by_layer():
    x = pictures(2)
    for device in ("sim", "oracle", "cycle"):
        found = pyvta.verify("demo", x[:1] if device == "oracle" else x, device)
        assert found and found.mismatches == [] and found.layers > 20
    assert pyvta.verify("demo", {"input": x}, config={"LOG_BLOCK": 5}).images == 2


def test_progress_is_told_and_may_stop_the_work(float_model):
    seen = []
    pyvta.quantize(float_model, pictures(40), progress=lambda done, all: seen.append((done, all)))
    assert seen == sorted(seen) and seen[-1][0] == seen[-1][1] > 0

    def stop(done, all):
        raise RuntimeError(f"stop at {all}")

    with pytest.raises(RuntimeError, match="stop at"):
        pyvta.quantize(float_model, pictures(40), progress=stop)


def test_labels_of_the_demo_are_right():
    with np.load(ROOT / "models/demo/cifar10_test200.npz") as data:
        images, labels = data["images"], data["labels"]
    mean, std = np.float32([0.4914, 0.4822, 0.4465]), np.float32([0.2470, 0.2435, 0.2616])
    if images.shape[-1] == 3:
        images = images.transpose(0, 3, 1, 2)
    x = (images / np.float32(255) - mean[:, None, None]) / std[:, None, None]
    [logits] = pyvta.InferenceSession("demo").run(None, {"input": x.astype(np.float32)})
    assert (logits.argmax(1) == labels).mean() > 0.85
