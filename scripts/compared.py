"""What scripts/coverage and scripts/trained share: a network's file with its inputs, quantised and run by `vta` and by
onnxruntime."""

import json
import logging
import re
import subprocess
import textwrap
import warnings
from pathlib import Path

import numpy as np

warnings.filterwarnings("ignore")
logging.disable(logging.WARNING)

# The longest that one command may take, in seconds.
LIMIT = 3600
# onnxruntime's ways of quantising: the types of activations and weights, whether weights have a scale per channel, and
# further options.
KINDS = {
    "S8S8": ("QInt8", "QInt8", True, {}),
    "U8U8": ("QUInt8", "QUInt8", True, {}),
    "symmetric": ("QInt8", "QInt8", True, {"ActivationSymmetric": True, "WeightSymmetric": True}),
    "default": ("QUInt8", "QInt8", False, {}),
    "uint8": ("QUInt8", "QUInt8", False, {}),
}


def one_thread():
    """Makes every session of onnxruntime use one thread: its calibration would take all CPUs and wait in loops."""
    import onnxruntime

    made = onnxruntime.SessionOptions

    def options():
        chosen = made()
        chosen.intra_op_num_threads = 1
        return chosen

    if isinstance(made, type):
        onnxruntime.SessionOptions = options


def command(arguments):
    """A command's output; its last line of errors is raised."""
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, timeout=LIMIT)
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or ["it printed nothing"]
        raise RuntimeError(lines[-1].replace("error: ", ""))
    return done.stdout


def session(path, optimization="DISABLE_ALL", threads=1):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, f"ORT_{optimization}")
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class Given:
    """A folder with a network's `model.onnx` and arrays of its inputs: `calibration.0.npy` has those of the first."""

    def __init__(self, folder):
        self.folder, self.model = folder, folder / "model.onnx"
        # A dimension that the file leaves open is a batch.
        self.inputs = [(value.name, [d if isinstance(d, int) else 1 for d in value.shape], value.type) for value in session(self.model).get_inputs()]
        labels = folder / "test.labels.npy"
        self.labels = np.load(labels) if labels.exists() else None

    def files(self, what):
        return [self.folder / f"{what}.{k}.npy" for k in range(len(self.inputs))]

    def feeds(self, what):
        """What onnxruntime takes, a sample after the other."""
        arrays = [np.load(path) for path in self.files(what)]
        for k in range(len(arrays[0])):
            yield {name: values[k].reshape(shape) for (name, shape, _), values in zip(self.inputs, arrays)}

    def arguments(self, option, what):
        """The same as options of `vta`."""
        files = self.files(what)
        named = files if len(files) == 1 else [f"{name}={path}" for (name, *_), path in zip(self.inputs, files)]
        return [word for path in named for word in (option, path)]

    def first(self, what):
        """Writes the first sample alone, and says of what it now is one."""
        for k, path in enumerate(self.files(what)):
            np.save(self.folder / f"one.{k}.npy", np.load(path)[:1])
        return "one"


def sampled(values):
    """An output of one run without its batch of one."""
    return values[0] if values.ndim > 1 and values.shape[0] == 1 else values


def reference(path, given, what="test", optimization="DISABLE_ALL"):
    """onnxruntime's outputs by their names, an entry a sample. Where int8 sums may wrap, nothing is optimised."""
    run = session(path, optimization)
    rows = [[sampled(np.asarray(values, np.float32)) for values in run.run(None, feed)] for feed in given.feeds(what)]
    return {output.name: np.stack([row[k] for row in rows]) for k, output in enumerate(run.get_outputs())}


def ours(vta, model, given, expected, what="test", more=()):
    """The outputs of `vta run`, shaped as float's, and its report."""
    out = given.folder / "out.npz"
    out.unlink(missing_ok=True)
    told = command([vta, "run", model, *given.arguments("--input", what), "--preprocess", "raw", "--allow-host", "-o", out, "--json", *more])
    loaded = np.load(out)
    names = {name: re.sub(r"^/", "", name).replace("..", "__") for name in expected}
    count = len(np.load(given.files(what)[0], mmap_mode="r"))
    found = {name: loaded[names[name]].astype(np.float32).reshape(count, *values.shape[1:]) for name, values in expected.items()}
    return found, json.loads(told)


def cosines(expected, found):
    """The cosine of each sample; 1 where both are zero, 0 where one is, and not a number where an output isn't."""
    a, b = (values.reshape(len(values), -1).astype(np.float64) for values in (expected, found))
    lengths = np.linalg.norm(a, axis=1), np.linalg.norm(b, axis=1)
    product = lengths[0] * lengths[1]
    cosine = (a * b).sum(1) / np.where(product == 0, 1, product)
    return np.where(product == 0, (lengths[0] == lengths[1]).astype(float), cosine)


def ends(model):
    """The nodes of the first layer with weights, and those of the last with all behind it."""
    weighted = [k for k, node in enumerate(model.graph.node) if node.op_type in ("Conv", "ConvTranspose", "Gemm", "MatMul")]
    return [model.graph.node[weighted[0]].name, *(node.name for node in model.graph.node[weighted[-1] :])]


def prepared(given):
    """The network as `quantize_static` wants it: shapes are known, nodes have names."""
    import onnx
    from onnxruntime.quantization.shape_inference import quant_pre_process

    path = given.folder / "prepared.onnx"
    if path.exists():
        return path
    model = onnx.load(str(given.model))
    # DequantizeLinear has an axis from there on.
    if max(opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")) < 13:
        model = onnx.version_converter.convert_version(model, 13)
    # A name of its own until it is whole.
    whole = path.with_suffix(".whole")
    onnx.save(model, str(whole))
    quant_pre_process(str(whole), str(whole), skip_symbolic_shape=True)
    model = onnx.load(str(whole))
    for k, node in enumerate(model.graph.node):
        node.name = node.name or f"node_{k}"
    onnx.save(model, str(whole))
    return whole.rename(path)


def quantize(kind, given, target, exclude=lambda model: [], kept=False):
    """onnxruntime's static quantisation, but for the nodes that `exclude` names. Ways of one network share its calibration
    where it is kept."""
    import onnx
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self):
            self.rows = given.feeds("calibration")

        def get_next(self):
            return next(self.rows, None)

    ranges = given.folder / "ranges.json"
    if not kept:
        for path in (ranges, given.folder / "prepared.onnx"):
            path.unlink(missing_ok=True)
    activations, weights, channels, extra = KINDS[kind]
    source = prepared(given)
    quantize_static(str(source), str(target), Reader(), quant_format=QuantFormat.QDQ, per_channel=channels,
                    activation_type=QuantType[activations], weight_type=QuantType[weights],
                    nodes_to_exclude=exclude(onnx.load(str(source))), extra_options=dict(extra),
                    calibration_cache_path=ranges)


def paragraph(text):
    return [*textwrap.wrap(text, 110, break_long_words=False, break_on_hyphens=False), ""]


def bullet(text):
    return textwrap.wrap(f"- {text}", 110, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def escaped(text):
    return text.replace("|", "/").replace("<", "&lt;").replace("\n", " ")
