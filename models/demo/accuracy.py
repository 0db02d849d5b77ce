"""Compare the accuracy of a float network for CIFAR-10 with that of its quantisations on `vta`.

Usage: accuracy.py VTA MODEL.onnx TEST_BATCH.bin FOLDER [IMAGES [KIND,..]]
TEST_BATCH.bin holds labels and images as CIFAR-10's binary batches do. Into FOLDER go the quantised models:
by `vta quantize` (kind `vta`), by onnxruntime's defaults (`default`), and by onnxruntime with weights per channel
(`channel`), all calibrated with cifar10_calib128.npz. Prints top-1 of onnxruntime on the float model and of `vta run` on each, over all images;
of onnxruntime without optimisation on each over the first IMAGES (2000), and how many labels are equal there.
Then the same over the 200 images of cifar10_test200.npz.
"""

import json, logging, os, pathlib, subprocess, sys, warnings
from concurrent.futures import ThreadPoolExecutor
import numpy as np, onnx, onnxruntime as ort
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)
here = pathlib.Path(__file__).parent
vta, model, batch, folder = sys.argv[1], *map(pathlib.Path, sys.argv[2:5])
few = int(sys.argv[5]) if len(sys.argv) > 5 else 2000
kinds = sys.argv[6].split(",") if len(sys.argv) > 6 else ["vta", "default", "channel"]
name = model.stem
size = onnx.load(str(model)).graph.input[0].type.tensor_type.shape.dim[3].dim_value
mean = np.array([0.4914, 0.4822, 0.4465], np.float32)[:, None, None]
std = np.array([0.2470, 0.2435, 0.2616], np.float32)[:, None, None]


def weights():
    """The share of each pixel in each of a row or column that is `size` wide (bilinear, edges repeated)."""
    at = np.clip((np.arange(size) + 0.5) * 32 / size - 0.5, 0, 31)
    low = np.floor(at).astype(int)
    w = np.zeros((size, 32), np.float32)
    np.add.at(w, (np.arange(size), low), 1 - (at - low))
    np.add.at(w, (np.arange(size), np.minimum(low + 1, 31)), at - low)
    return w


share = weights()


def prepare(images):
    x = (images.astype(np.float32) / 255 - mean) / std
    return x if size == 32 else np.matmul(np.matmul(share, x), share.T)


def session(path, level):
    options = ort.SessionOptions()
    options.graph_optimization_level = level
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def labels_of(path, images, level=ort.GraphOptimizationLevel.ORT_DISABLE_ALL):
    run = session(path, level)
    with ThreadPoolExecutor(os.cpu_count()) as threads:
        return np.array(list(threads.map(lambda i: run.run(None, {"input": prepare(i[None])})[0].argmax(), images)))


class Calibration(CalibrationDataReader):
    def __init__(self):
        images = np.load(here / "cifar10_calib128.npz")["images"]
        self.rows = iter([{"input": prepare(i[None])} for i in images])

    def get_next(self):
        return next(self.rows, None)


def quantize():
    """The quantised models by their names."""
    names = {"vta": "vta quantize", "default": "onnxruntime, default", "channel": "onnxruntime, per channel"}
    both = dict(activation_type=QuantType.QInt8, weight_type=QuantType.QInt8, per_channel=True)
    symmetric = {"extra_options": {"ActivationSymmetric": True, "WeightSymmetric": True}}
    options = {"default": {}, "channel": {**both, **symmetric}}
    paths = {kind: folder / f"{name}.{kind}.onnx" for kind in kinds}
    prepared = folder / f"{name}.prepared.onnx"
    for kind, path in paths.items():
        if path.exists():
            continue
        if kind == "vta":
            args = ["--calibration", here / "cifar10_calib128.npz", "--preprocess", "cifar10", "-o", path]
            subprocess.run([vta, "quantize", model, *args], check=True, stdout=subprocess.DEVNULL)
        else:
            quant_pre_process(str(model), str(prepared))
            quantize_static(str(prepared), str(path), Calibration(), **options[kind])
    return {names[kind]: path for kind, path in paths.items()}


def ours(path, images):
    npz, out = folder / "images.npz", folder / "out.npy"
    np.savez(npz, images=images)
    args = ["--input", npz, "--preprocess", "cifar10", "--json", "-o", out]
    text = subprocess.run([vta, "run", path, *args], check=True, capture_output=True, text=True).stdout
    assert json.loads(text).get("host_ops", 0) == 0
    return np.load(out).reshape(len(images), -1).argmax(1)


raw = np.fromfile(batch, np.uint8).reshape(-1, 3073)
# Classes mixed, so that the first images are as hard as all.
raw = raw[np.random.default_rng(0).permutation(len(raw))]
lossless = np.load(here / "cifar10_test200.npz")
sets = [
    (raw[:, 1:].reshape(-1, 3, 32, 32), raw[:, 0]),
    (lossless["images"], lossless["labels"]),
]
quantized = quantize()
for images, truth in sets:
    top1 = lambda found: f"{(found == truth[: len(found)]).mean() * 100:6.2f} %"
    float_labels = labels_of(model, images, ort.GraphOptimizationLevel.ORT_ENABLE_ALL)
    print(f"{name}, {len(images)} images: float {top1(float_labels)}", flush=True)
    for kind, path in quantized.items():
        found = ours(path, images)
        print(f"  {kind:26} vta {top1(found)}", end="", flush=True)
        theirs = labels_of(path, images[:few])
        equal = (theirs == found[:few]).sum()
        print(f"  onnxruntime {top1(theirs)} of {len(theirs)} (float {top1(float_labels[:few])}, "
              f"vta {top1(found[:few])}), {equal} labels equal", flush=True)
