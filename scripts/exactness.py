"""Where `vta` parts from onnxruntime on the same quantised network, and why.

Usage: exactness.py --vta VTA [--write docs/exactness.md] MODEL.onnx:IMAGES.npy..
MODEL.onnx is a QDQ file, IMAGES.npy its float inputs (as scripts/coverage keeps them), of which the first is run.
`vta run` and onnxruntime without graph optimisation run it whole. Then onnxruntime and, in doubles, PyTorch compute every
layer of it from the int8 values that `vta` has before that layer. A value that differs there is beside a tie (both
neighbours are as near), or one of the two isn't the nearest to what doubles say. --write puts the table between the
marks of a file.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper

BEGIN, END = "<!-- table by scripts/exactness.py -->\n", "<!-- end of the table -->\n"
HEAD = (
    "| network | values | runs differ | layers differ | at ties | `vta` farther | onnxruntime farther "
    "| `vta` at most | onnxruntime at most |\n|---|---|---|---|---|---|---|---|---|\n"
)
# Nearer to the middle than this is a tie: doubles are off by less.
TIE = 1e-7


class Network:
    def __init__(self, path):
        self.model = onnx.load(str(path))
        graph = self.model.graph
        self.constants = {i.name: numpy_helper.to_array(i) for i in graph.initializer}
        self.maker = {o: n for n in graph.node for o in n.output}
        for node in graph.node:
            if node.op_type == "Constant":
                self.constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        self.quantizers = [n for n in graph.node if n.op_type == "QuantizeLinear" and n.input[0] not in self.constants]
        self.readers = {}
        for node in graph.node:
            if node.op_type == "DequantizeLinear":
                self.readers.setdefault(node.input[0], node.output[0])
        self.quantizers = [q for q in self.quantizers if q.output[0] in self.readers]
        self.input = next(i.name for i in graph.input if i.name not in self.constants)

    def step(self, quantizer):
        scale = float(self.constants[quantizer.input[1]])
        zero = self.constants[quantizer.input[2]] if len(quantizer.input) > 2 else np.uint8(0)
        return scale, int(zero), zero.dtype

    def before(self, quantizer):
        """The value that a quantised one is, moved at most."""
        name = quantizer.input[0]
        while name in self.maker and self.maker[name].op_type in ("Flatten", "Reshape", "Squeeze", "Identity", "Transpose"):
            name = self.maker[name].input[0]
        return name

    def with_outputs(self):
        """The network with every dequantised value as an output."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        there = {o.name for o in model.graph.output}
        names = [self.readers[q.output[0]] for q in self.quantizers]
        extra = [helper.make_tensor_value_info(n, TensorProto.FLOAT, None) for n in names if n not in there]
        model.graph.output.extend(extra)
        return model

    def cut(self):
        """The network whose layers read quantised values that are given, each `NAME.given`."""
        model = onnx.ModelProto()
        model.CopyFrom(self.model)
        graph, between = model.graph, {q.output[0] for q in self.quantizers}
        for node in graph.node:
            if node.op_type == "DequantizeLinear" and node.input[0] in between:
                node.input[0] += ".given"
        del graph.output[:]
        for q in self.quantizers:
            kind = helper.np_dtype_to_tensor_dtype(self.step(q)[2])
            graph.input.append(helper.make_tensor_value_info(q.output[0] + ".given", kind, None))
            graph.output.append(helper.make_tensor_value_info(q.output[0], kind, None))
        return model


def session(path):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    options.intra_op_num_threads = 2
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


class Doubles:
    """Values between quantised tensors, in doubles."""

    def __init__(self, network, ints, image):
        self.network, self.ints = network, ints
        self.known = {network.input: torch.tensor(image, dtype=torch.float64)}

    def value(self, name):
        if name not in self.known:
            self.known[name] = self.compute(name)
        return self.known[name]

    def compute(self, name):
        if name in self.network.constants:
            return torch.tensor(np.array(self.network.constants[name]))
        node = self.network.maker[name]
        if node.op_type == "DequantizeLinear":
            return self.dequantized(node)
        operation = getattr(self, node.op_type, None)
        if operation is None:
            raise NotImplementedError(node.op_type)
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        inputs = [self.value(i) if i else None for i in node.input]
        return operation(attributes, *[real(i) for i in inputs])

    def dequantized(self, node):
        constants = self.network.constants
        if node.input[0] in constants:
            ints = constants[node.input[0]].astype(np.float64)
        else:
            ints = self.ints[node.input[0]].astype(np.float64)
        scale = constants[node.input[1]].astype(np.float64)
        zero = constants[node.input[2]].astype(np.float64) if len(node.input) > 2 else np.float64(0)
        if scale.size > 1:
            axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
            shape = [1] * ints.ndim
            shape[axis] = -1
            scale, zero = scale.reshape(shape), zero.reshape(shape) if zero.size > 1 else zero
        return torch.tensor((ints - zero) * scale)

    def Conv(self, a, x, w, b=None):
        pads, ends = a.get("pads", [0] * 2 * (w.ndim - 2)), w.ndim - 2
        around = [p for k in reversed(range(ends)) for p in (pads[k], pads[k + ends])]
        conv = {1: F.conv1d, 2: F.conv2d}[ends]
        return conv(F.pad(x, around), w, b, a.get("strides", 1), 0, a.get("dilations", 1), a.get("group", 1))

    def Gemm(self, a, x, w, b=None):
        y = (x.T if a.get("transA") else x) @ (w.T if a.get("transB") else w) * a.get("alpha", 1.0)
        return y if b is None else y + b * a.get("beta", 1.0)

    def Clip(self, a, x, low=None, high=None):
        low = a.get("min", -np.inf) if low is None else float(low)
        return x.clamp(low, a.get("max", np.inf) if high is None else float(high))

    def ReduceMean(self, a, x, axes=None):
        axes = a.get("axes") if axes is None else [int(i) for i in axes]
        return x.mean(axes, keepdim=bool(a.get("keepdims", 1)))

    def MaxPool(self, a, x):
        p = a.get("pads", [0] * 4)
        x = F.pad(x, [p[1], p[3], p[0], p[2]], value=-np.inf)
        ceil = bool(a.get("ceil_mode"))
        return F.max_pool2d(x, a["kernel_shape"], a.get("strides", [1, 1]), 0, a.get("dilations", 1), ceil)

    def AveragePool(self, a, x):
        p = a.get("pads", [0] * 4)
        if a.get("ceil_mode") or p[:2] != p[2:]:
            raise NotImplementedError("AveragePool")
        return F.avg_pool2d(x, a["kernel_shape"], a.get("strides", [1, 1]), p[:2], False, bool(a.get("count_include_pad")))

    def HardSigmoid(self, a, x):
        return (x * float(np.float32(a.get("alpha", 0.2))) + float(np.float32(a.get("beta", 0.5)))).clamp(0, 1)

    def Flatten(self, a, x):
        return x.reshape(*x.shape[: a.get("axis", 1)], -1).reshape(int(np.prod(x.shape[: a.get("axis", 1)])), -1)

    def Reshape(self, a, x, shape):
        shape = [int(s) for s in shape]
        return x.reshape([x.shape[k] if s == 0 else s for k, s in enumerate(shape)])

    def Squeeze(self, a, x, axes=None):
        for axis in sorted(([int(i) for i in axes] if axes is not None else a["axes"]), reverse=True):
            x = x.squeeze(axis)
        return x

    Add = staticmethod(lambda a, x, y: x + y)
    Sub = staticmethod(lambda a, x, y: x - y)
    Mul = staticmethod(lambda a, x, y: x * y)
    Div = staticmethod(lambda a, x, y: x / y)
    MatMul = staticmethod(lambda a, x, y: x @ y)
    Relu = staticmethod(lambda a, x: x.clamp(min=0))
    Sigmoid = staticmethod(lambda a, x: torch.sigmoid(x))
    Identity = staticmethod(lambda a, x: x)
    LeakyRelu = staticmethod(lambda a, x: torch.where(x < 0, x * float(np.float32(a.get("alpha", 0.01))), x))
    HardSwish = staticmethod(lambda a, x: x * (x / 6 + 0.5).clamp(0, 1))
    GlobalAveragePool = staticmethod(lambda a, x: x.mean(tuple(range(2, x.ndim)), keepdim=True))
    Concat = staticmethod(lambda a, *x: torch.cat(x, a["axis"]))
    Transpose = staticmethod(lambda a, x: x.permute(a["perm"]))


def real(value):
    """In doubles, but indices as they are."""
    floats = value is not None and value.dtype in (torch.float32, torch.float16)
    return value.double() if floats else value


def ours(vta, model, images, names, folder):
    """The dequantised values of `vta`, by name; each name comes with that of the value before it."""
    onnx.save(model, str(folder / "outputs.onnx"))
    np.save(folder / "image.npy", images)
    out = folder / "out.npz"
    done = subprocess.run(
        [vta, "run", folder / "outputs.onnx", "--input", folder / "image.npy", "--preprocess", "raw", "--allow-host", "-o", out],
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(done.stderr.strip().splitlines()[-1])
    found = np.load(out)
    values = {}
    for name, before in names.items():
        # What only moves is one tensor, which has the name of the first; the input keeps its own.
        key = next(k for k in (written(name), written(before), before) if k in found or k in values)
        values[name] = found[key] if key in found else values[key]
    return values


def written(name):
    return name.lstrip("/").replace("..", "__")


def measure(vta, path, images):
    """Counts and distances of a network on one image."""
    network, image = Network(path), np.load(images)[:1]
    names = [network.readers[q.output[0]] for q in network.quantizers]
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        before = {name: network.before(q) for name, q in zip(names, network.quantizers)}
        found = ours(vta, network.with_outputs(), image, before, folder)
        theirs_whole = session(folder / "outputs.onnx").run(names, {network.input: image})
        ints, whole = {}, 0
        for q, name, peer in zip(network.quantizers, names, theirs_whole):
            scale, zero, kind = network.step(q)
            to_int = lambda x: np.rint(x.astype(np.float64) / scale + zero).astype(kind)
            ints[q.output[0]] = to_int(found[name].reshape(peer.shape))
            whole += int((ints[q.output[0]] != to_int(peer)).sum())
        onnx.save(network.cut(), str(folder / "cut.onnx"))
        given = {f"{name}.given": value for name, value in ints.items()}
        outputs = [q.output[0] for q in network.quantizers]
        peers = session(folder / "cut.onnx").run(outputs, {network.input: image, **given})
    doubles = Doubles(network, ints, image)
    total = dict(values=0, whole=whole, layers=0, tie=0, ours=0, theirs=0, unknown=0, far_ours=0.0, far_theirs=0.0, all=0)
    worst = {}
    for q, peer in zip(network.quantizers, peers):
        scale, zero, kind = network.step(q)
        own = ints[q.output[0]]
        total["all"] += own.size
        differ = own != peer
        try:
            exact = doubles.value(q.input[0]).double().numpy() / scale + zero
        except NotImplementedError as error:
            total["unknown"] += own.size
            worst.setdefault(str(error), 0)
            continue
        total["values"] += own.size
        total["layers"] += int(differ.sum())
        limits = np.iinfo(kind)
        exact = np.clip(exact.reshape(own.shape), limits.min, limits.max)
        off = {"ours": np.abs(own - exact) - 0.5, "theirs": np.abs(peer - exact) - 0.5}
        tie = differ & (np.abs(off["ours"]) < TIE)
        total["tie"] += int(tie.sum())
        for who in "ours", "theirs":
            total[who] += int((differ & ~tie & (off[who] > 0)).sum())
            total[f"far_{who}"] = max(total[f"far_{who}"], float(off[who].max(initial=0)))
    return total


def row(path, total):
    share = lambda count, of: f"{count / max(of, 1) * 1e6:.1f}"
    figures = [share(total["whole"], total["all"]), share(total["layers"], total["values"]), total["tie"], total["ours"], total["theirs"]]
    figures += [f"{total['far_ours']:.6f}", f"{total['far_theirs']:.6f}"]
    path = Path(path)
    name = f"{path.parent.name}/{path.stem}" if path.stem.startswith(("classic", "dynamo")) else path.stem
    return f"| {name} | {total['values']:,} | " + " | ".join(map(str, figures)) + " |\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--vta", required=True, help="the program")
    parser.add_argument("--write", help="the file whose table is replaced")
    parser.add_argument("networks", nargs="+", metavar="MODEL.onnx:IMAGES.npy")
    arguments = parser.parse_args()
    table = HEAD
    print(HEAD, end="")
    for given in arguments.networks:
        model, _, images = given.rpartition(":")
        try:
            line = row(model, measure(Path(arguments.vta).resolve(), model, images))
        except Exception as error:
            print(f"{model}: {error}"[:400], file=sys.stderr)
            continue
        print(line, end="", flush=True)
        table += line
    if arguments.write:
        path = Path(arguments.write)
        before, rest = path.read_text().split(BEGIN)
        path.write_text(before + BEGIN + table + END + rest.split(END)[1])


if __name__ == "__main__":
    main()
