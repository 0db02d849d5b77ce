"""From a float model to int8, to a bundle, and beside the reference interpreter."""

import numpy as np
import pytest

import pyvta
from conftest import ROOT, pictures


@pytest.fixture(scope="module")
def model(float_model):
    return pyvta.quantize(float_model, [pictures(4), pictures(3, seed=1)], method="min-max")


def test_calibration_may_come_in_any_batches(model, float_model):
    x = np.concatenate([pictures(4), pictures(3, seed=1)])
    assert (model.images, pyvta.quantize(float_model, x, limit=2).images) == (7, 2)

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


def test_a_session_takes_it_in_every_form(model, tmp_path):
    x = pictures(2)
    model.save(tmp_path / "q.onnx")
    compiled = pyvta.compile(model, preprocess="cifar10")
    assert compiled.save(tmp_path / "q.vta") == (tmp_path / "q.vta").stat().st_size
    assert compiled.host_ops == 0 and compiled.config["LOG_BLOCK"] == 4 and len(compiled.layers) > 20
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
