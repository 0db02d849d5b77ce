#!/usr/bin/env python3
"""Int8 networks on one thread of this CPU: pyvta, onnxruntime and XNNPACK in turns, in milliseconds of CPU time an image.

    scripts/peers.py export FOLDER     timm's networks with seeded weights as float ONNX (torch, timm, onnx)
    scripts/peers.py tflite FOLDER     Keras's MobileNets and ResNet-50, the same shapes, int8 (tensorflow-cpu)
    scripts/peers.py measure FOLDER    all that lie there (numpy, pyvta, onnxruntime; ai-edge-litert for .tflite files)

The packages may be in an environment for each command. `measure` quantises with `vta quantize` what isn't yet. Each peer is
called in this process with an array, which for XNNPACK has int8 already. Figures are medians and quartiles over the turns.
"""

import statistics
import subprocess
import sys
import time
from pathlib import Path

# timm's networks, and Keras's of the same shapes.
NETWORKS = {
    "mobilenetv1_100": "MobileNet",
    "mobilenetv2_100": "MobileNetV2",
    "tf_efficientnet_lite0": None,
    "mobilenetv3_large_100": None,
    "resnet50": "ResNet50",
}
# Images for calibration, runs before the first turn, runs of a turn.
IMAGES = WARM = 40
RUNS = 120
TURNS = 9


def export(folder):
    import numpy as np
    import timm
    import torch

    torch.manual_seed(0)
    for name in NETWORKS:
        # Some networks would begin with weights of zero, which are no network to measure.
        more = {"zero_init_last": False} if name.startswith("resnet") else {}
        model = timm.create_model(name, pretrained=False, **more).train()
        for module in model.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.momentum = 1.0
        with torch.no_grad():
            model(torch.randn(8, 3, 224, 224))
        names = {"input_names": ["input"], "output_names": ["output"], "opset_version": 17, "dynamo": False}
        torch.onnx.export(model.eval(), torch.randn(1, 3, 224, 224), str(folder / f"{name}.onnx"), **names)
    images = np.random.default_rng(0).standard_normal((IMAGES, 3, 224, 224)).astype(np.float32)
    np.save(folder / f"images{IMAGES}.npy", images)


def tflite(folder):
    import numpy as np
    import tensorflow as tf
    from tensorflow.python.framework.convert_to_constants import convert_variables_to_constants_v2

    tf.keras.utils.set_random_seed(0)
    random = np.random.default_rng(0)
    for name, keras in NETWORKS.items():
        if keras is None:
            continue
        model = getattr(tf.keras.applications, keras)(weights=None, input_shape=(224, 224, 3))
        function = tf.function(lambda x, model=model: model(x, training=False))
        function = function.get_concrete_function(tf.TensorSpec((1, 224, 224, 3)))
        converter = tf.lite.TFLiteConverter.from_concrete_functions([convert_variables_to_constants_v2(function)])
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        sample = lambda: [random.standard_normal((1, 224, 224, 3)).astype(np.float32)]
        converter.representative_dataset = lambda: (sample() for _ in range(4))
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
        (folder / f"{name}.tflite").write_bytes(converter.convert())


def timed(run):
    """A turn of a session in this process."""

    # The first runs plan.
    for _ in range(WARM):
        run()

    def turn():
        before = time.process_time()
        for _ in range(RUNS):
            run()
        return 1e3 * (time.process_time() - before) / RUNS

    return turn


def timed_session(session):
    """A turn of a session with onnxruntime's calls: floats in, floats out."""
    import numpy as np

    value = session.get_inputs()[0]
    image = np.random.default_rng(0).standard_normal((1, *value.shape[1:])).astype(np.float32)
    return timed(lambda: session.run(None, {value.name: image}))


def ours(model):
    import pyvta

    return timed_session(pyvta.InferenceSession(model, threads=1))


def onnxruntime(model):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    return timed_session(ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"]))


def xnnpack(model):
    import numpy as np
    from ai_edge_litert.interpreter import Interpreter

    interpreter = Interpreter(str(model), num_threads=1)
    interpreter.allocate_tensors()
    value = interpreter.get_input_details()[0]
    interpreter.set_tensor(value["index"], np.zeros(value["shape"], np.int8))
    return timed(interpreter.invoke)


def measure(folder, vta="target/release/vta"):
    print("| network | vta, ms | onnxruntime, ms | ratio | XNNPACK, ms | ratio |\n|---|---|---|---|---|---|")
    for name in NETWORKS:
        quantized, floats, lite = (folder / f"{name}{end}" for end in (".int8.onnx", ".onnx", ".tflite"))
        if not quantized.exists():
            if not floats.exists():
                continue
            command = [vta, "quantize", floats, "--calibration", folder / f"images{IMAGES}.npy", "-o", quantized]
            subprocess.run(command, check=True, capture_output=True)
        turns = {"vta": ours(quantized), "onnxruntime": onnxruntime(quantized)}
        if lite.exists():
            turns["XNNPACK"] = xnnpack(lite)
        taken = {peer: [] for peer in turns}
        for _ in range(TURNS):
            for peer, turn in turns.items():
                taken[peer].append(turn())
        cells = [told(taken["vta"])]
        for peer in ("onnxruntime", "XNNPACK"):
            ratios = [a / b for a, b in zip(taken["vta"], taken.get(peer, []))]
            cells += [told(taken[peer]), told(ratios)] if ratios else ["", ""]
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def told(figures):
    low, middle, high = statistics.quantiles(figures, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


if __name__ == "__main__":
    commands = {"export": export, "tflite": tflite, "measure": measure}
    if len(sys.argv) < 3 or sys.argv[1] not in commands:
        sys.exit(__doc__)
    commands[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
