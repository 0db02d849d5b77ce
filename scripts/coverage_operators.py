"""Single operators in CI: ONNX's own tests against the values that they have, and made models against onnxruntime.

Each model is a float one; `vta run` takes its scales from the only input that there is. A model must be near what is
expected, or be refused where REFUSED says so.
"""

import collections
import subprocess
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# Operators that nothing computes, or not in every form: refusals that contain one of these words are right.
REFUSED = ["neither the device nor the host has this operator", "nor does the host", "opset ", "the most is", "x_stride holds at most", "half the scratchpad"]
# ONNX's tests by their names: of training, of other types than floats, of chance, with constants for each image.
LEFT_OUT = ["_expanded", "sign_model", "dropout_", "bernoulli", "training", "string", "cast_", "castlike", "sequence", "optional", "quantize",
            "PoissonNLLLLoss_no_reduce", "operator_params"]
# Operators whose tests of ONNX run with constants for all inputs but one.
NODES = ["Attention", "DFT", "DynamicQuantizeLinear", "GRU", "GridSample", "LSTM", "Loop", "RNN", "STFT"]
# The least share of ONNX's tests that run, and of those, whose attributes the host's engine often lacks.
LEAST_SHARE = 0.8
LEAST_OF_NODES = 0.95
# The smallest cosine, and the largest difference in shares of the largest value.
NEAR = (0.99, 0.1)


def run(vta, model, values, folder):
    """What `vta` computes of a model, or why it refuses it."""
    given, made = folder / "x.npy", folder / "y.npz"
    np.save(given, values)
    command = [vta, "run", model, "--input", given, "--preprocess", "raw", "--allow-host", "-o", made]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=120)
    if done.returncode:
        return None, done.stderr.strip()
    arrays = np.load(made)
    return np.concatenate([arrays[name].astype(np.float64).ravel() for name in arrays.files]), ""


def fault(found, expected):
    """Why values aren't near others; nothing where they are."""
    expected = expected.astype(np.float64).ravel()
    # Rows that a run may give and doesn't are -1.
    if found.size > expected.size and (found[expected.size :] == -1).all():
        found = found[: expected.size]
    if found.size != expected.size:
        return f"{found.size} values, not {expected.size}"
    if not np.isfinite(expected).all() or not np.abs(expected).max(initial=0):
        return ""
    cosine = found @ expected / (np.linalg.norm(found) * np.linalg.norm(expected) + 1e-30)
    most = np.abs(found - expected).max() / np.abs(expected).max()
    return f"cosine {cosine:.4f}, off by {most:.3f}" if cosine < NEAR[0] or most > NEAR[1] else ""


def of_onnx():
    """ONNX's tests of one float input and one output: name, path, input, output."""
    data = Path(onnx.__file__).parent / "backend/test/data"
    for path in sorted(data.glob("*/*/model.onnx")):
        name = f"{path.parent.parent.name}/{path.parent.name}"
        if any(word in name for word in LEFT_OUT):
            continue
        graph = onnx.load(path).graph
        constants = {tensor.name for tensor in graph.initializer}
        inputs = [value for value in graph.input if value.name not in constants]
        case = path.parent / "test_data_set_0"
        if len(inputs) != 1 or len(graph.output) != 1 or inputs[0].type.tensor_type.elem_type != TensorProto.FLOAT:
            continue
        x, y = (numpy_helper.to_array(onnx.load_tensor(case / f"{what}_0.pb")) for what in ["input", "output"])
        if x.size and y.dtype.kind in "fiub":
            yield name, path, x, y


def of_nodes(folder):
    """ONNX's tests of some operators, for the first of a batch: name, path, first float input, first output. Other inputs
    are constants."""
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases(None):
        graph = case.model.graph
        if graph.node[0].op_type not in NODES or len(graph.node) != 1 or "_expanded" in case.name:
            continue
        values, expected = case.data_sets[0]
        floats = [i for i, value in enumerate(graph.input) if value.type.tensor_type.elem_type == TensorProto.FLOAT]
        wide = [value.type.tensor_type.elem_type for value in graph.input if value.type.HasField("tensor_type")]
        shape = values[floats[0]].shape if floats else ()
        # Rows of a matrix, and steps of a sequence, would be taken for images.
        if len(shape) in (2, 3) and shape[0] > 1 and graph.node[0].op_type != "Attention":
            continue
        if not floats or not isinstance(expected[0], np.ndarray) or len(wide) != len(graph.input):
            continue
        values, y = [np.asarray(value) for value in values], expected[0]
        if graph.node[0].op_type == "Attention" and values[0].shape[0] > 1:
            batch = values[0].shape[0]
            values = [value[:1] if value.ndim != 2 and value.shape[0] == batch else value for value in values]
            y = y[:1]
        model = onnx.ModelProto()
        model.CopyFrom(case.model)
        [x] = [values[i] for i in floats[:1]]
        for i, value in enumerate(graph.input):
            if i != floats[0]:
                model.graph.initializer.append(numpy_helper.from_array(values[i], value.name))
        given = helper.make_tensor_value_info(graph.input[floats[0]].name, TensorProto.FLOAT, x.shape)
        kind = graph.output[0].type.tensor_type.elem_type
        del model.graph.input[:], model.graph.output[:], model.graph.value_info[:]
        model.graph.input.append(given)
        model.graph.output.append(helper.make_tensor_value_info(graph.output[0].name, kind, None))
        path = folder / "node.onnx"
        onnx.save(model, path)
        yield case.name, path, x[None], y


def one_image(path, target):
    """Writes a model for the first image of its batch, and gives the file."""
    model = onnx.load(path)
    constants = {tensor.name for tensor in model.graph.initializer}
    [given] = [value for value in model.graph.input if value.name not in constants]
    given.type.tensor_type.shape.dim[0].dim_value = 1
    for value in model.graph.output:
        value.type.tensor_type.ClearField("shape")
    del model.graph.value_info[:]
    onnx.save(model, target)
    return target


def made():
    """Nodes behind a convolution, with their constants: operators that the tests above have no float form of."""
    random = np.random.default_rng(1)
    floats = lambda name, *shape: numpy_helper.from_array(random.normal(0, 0.4, shape).astype(np.float32), name)
    of = lambda name, values, kind=np.float32: numpy_helper.from_array(np.array(values, kind), name)
    long = lambda name, values: of(name, values, np.int64)
    node = helper.make_node
    yield "Clip", [node("Clip", ["t", "", "m"], ["y"])], [of("m", 0.5)]
    for place in ["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"]:
        attributes = {"mode": "cubic", "coordinate_transformation_mode": place}
        yield f"Resize cubic {place}", [node("Resize", ["t", "", "s"], ["y"], **attributes)], [of("s", [1, 1, 2, 1.5])]
    attributes = {"mode": "cubic", "cubic_coeff_a": -0.5, "exclude_outside": 1}
    yield "Resize cubic outside", [node("Resize", ["t", "", "", "s"], ["y"], **attributes)], [long("s", [1, 4, 13, 5])]
    for step in ([2, 2], [1, 3]):
        given = [long("a", [0, 1]), long("b", [99, 99]), long("c", [2, 3]), long("d", step)]
        yield f"Slice {step}", [node("Slice", ["t", "a", "b", "c", "d"], ["y"])], given
    turn = node("Reshape", ["t", "r"], ["q"])
    steps, rows = long("r", [32, 1, 8]), long("r", [1, 32, 8])
    for kind, gates in [("LSTM", 4), ("GRU", 3)]:
        for direction in ["forward", "reverse", "bidirectional"]:
            count = 2 if direction == "bidirectional" else 1
            weights = [floats("w", count, gates * 6, 8), floats("u", count, gates * 6, 6), floats("z", count, gates * 12)]
            more = {"linear_before_reset": 1} if kind == "GRU" else {}
            cell = node(kind, ["q", "w", "u", "z"], ["y"], hidden_size=6, direction=direction, **more)
            yield f"{kind} {direction}", [turn, cell], [steps, *weights]
    branches = {}
    for name, kind in [("then_branch", "Relu"), ("else_branch", "Abs")]:
        value = helper.make_tensor_value_info(name, TensorProto.FLOAT, None)
        branches[name] = helper.make_graph([node(kind, ["t"], [name])], name, [], [value])
    for size in [8, 9]:
        nodes = [node("Shape", ["t"], ["h"]), node("Gather", ["h", "i"], ["n"]), node("Equal", ["n", "k"], ["c"])]
        yield f"If of {size}", [*nodes, node("If", ["c"], ["y"], **branches)], [long("i", 2), long("k", size)]
    tensor = lambda name, kind=TensorProto.FLOAT, shape=None: helper.make_tensor_value_info(name, kind, shape)
    inner = [node("Conv", ["a", "lw"], ["b"], pads=[1, 1, 1, 1]), node("Tanh", ["b"], ["d"]), node("Identity", ["on"], ["o"])]
    given = [tensor("trip", TensorProto.INT64, []), tensor("on", TensorProto.BOOL, []), tensor("a")]
    body = helper.make_graph(inner, "body", given, [tensor("o", TensorProto.BOOL, []), tensor("d"), tensor("b")])
    nodes = [node("Loop", ["m", "", "t"], ["e", "all"], body=body), node("ReduceSum", ["all"], ["s"], keepdims=0)]
    yield "Loop", [*nodes, node("Add", ["e", "s"], ["y"])], [long("m", 3), floats("lw", 4, 4, 3, 3)]
    turns = [node("Reshape", ["t", "r"], ["q"]), node("Attention", ["q", "w", "z"], ["y"], q_num_heads=2, kv_num_heads=2)]
    yield "Attention", turns, [rows, floats("w", 1, 5, 8), floats("z", 1, 5, 6)]
    back = [node("Cast", ["q"], ["f"], to=TensorProto.FLOAT), node("Cast", ["p"], ["g"], to=TensorProto.FLOAT)]
    real = [node("Sub", ["f", "g"], ["d"]), node("Mul", ["d", "s"], ["y"])]
    yield "DynamicQuantizeLinear", [node("DynamicQuantizeLinear", ["t"], ["q", "s", "p"]), *back, *real], []
    grid = np.stack(np.meshgrid(np.linspace(-1, 1, 5), np.linspace(-1, 1, 7)), -1)[None]
    for mode, outside, aligned in [("bilinear", "zeros", 0), ("bilinear", "reflection", 1), ("nearest", "border", 0), ("bicubic", "zeros", 1), ("bicubic", "reflection", 0)]:
        attributes = {"mode": mode, "padding_mode": outside, "align_corners": aligned}
        yield f"GridSample {mode} {outside}", [node("GridSample", ["t", "g"], ["y"], **attributes)], [of("g", grid * 1.37)]
    rows = node("Reshape", ["t", "v"], ["u"])
    for length, attributes in [(8, {}), (5, {"onesided": 1}), (11, {"inverse": 1}), (15, {"inverse": 1, "onesided": 1})]:
        nodes = [rows, node("DFT", ["u", "n", "axis"], ["y"], **attributes)]
        shape = [4, 8, 8, 1] if attributes == {"onesided": 1} else [4, 8, 4, 2]
        yield f"DFT {length} {attributes}", nodes, [long("v", shape), long("n", length), long("axis", 1)]
    for length, attributes in [(16, {}), (11, {"onesided": 0})]:
        nodes = [rows, node("STFT", ["u", "step", "w"], ["y"], **attributes)]
        yield f"STFT {length}", nodes, [long("v", [1, 256, 1]), long("step", 5), floats("w", length)]
    attributes = {"strides": [2, 1, 2], "pads": [1, 0, 1, 0, 1, 2], "output_padding": [1, 0, 1], "group": 2}
    nodes = [node("Reshape", ["t", "v"], ["u"]), node("ConvTranspose", ["u", "w", "z"], ["y"], **attributes)]
    yield "ConvTranspose of volumes", nodes, [long("v", [1, 2, 2, 8, 8]), floats("w", 2, 3, 2, 3, 3), floats("z", 6)]
    yield from quantized_at_run(floats, of, node)
    yield from joined(floats, of, node, random)
    for kind, attributes in [("MaxPool", {}), ("AveragePool", {}), ("AveragePool", {"count_include_pad": 1})]:
        nodes = [node("Unsqueeze", ["t", "axes"], ["v"]),
                 node(kind, ["v"], ["y"], kernel_shape=[3, 2, 3], strides=[1, 2, 1], pads=[1, 0, 1, 1, 0, 0], **attributes)]
        yield f"{kind} of volumes {attributes}", nodes, [long("axes", [0])]
    for attributes in [{"pads": [1, 0, 1, 0, 1, 1], "strides": [1, 2, 1], "group": 1}, {"auto_pad": "SAME_UPPER", "strides": [1, 1, 2]}]:
        nodes = [node("Unsqueeze", ["t", "axes"], ["v"]), node("Conv", ["v", "w", "z"], ["y"], **attributes)]
        yield f"Conv of volumes {attributes}", nodes, [long("axes", [0]), floats("w", 3, 1, 2, 3, 3), floats("z", 3)]
    attributes = {"kernel_shape": [3, 2], "dilations": [2, 3], "pads": [1, 0, 2, 1]}
    for counted in [0, 1]:
        yield f"AveragePool dilated {counted}", [node("AveragePool", ["t"], ["y"], count_include_pad=counted, **attributes)], []
    yield from recurrent(of, random)
    yield from chosen(of, random)
    yield "Flatten from the end", [node("Tanh", ["t"], ["q"]), node("Flatten", ["q"], ["f"], axis=-4), node("Tanh", ["f"], ["y"])], []
    none = [of("places", np.zeros((0, 4)), np.int64), of("updates", np.zeros(0))]
    for first in ["t", "all"]:
        nodes = [node("ScatterND", [first, "places", "updates"], ["q"]), node("Add", ["q", "t"], ["y"])]
        yield f"ScatterND of nothing into {first}", nodes, [*none, floats("all", 1, 4, 8, 8)]
    rolled = [node("Slice", ["t", "z", "n", "first"], ["a"]), node("Slice", ["t", "z", "z", "first"], ["e"])]
    nodes = [*rolled, node("Concat", ["e", "a"], ["c"], axis=1), node("Tanh", ["c"], ["y"])]
    yield "Concat of nothing", nodes, [long("z", [0]), long("n", [9]), long("first", [1])]
    yield "MaxPool dilated", [node("MaxPool", ["t"], ["y"], kernel_shape=[2, 3], dilations=[2, 2], pads=[1, 1, 0, 2])], []


def quantized_at_run(floats, of, node):
    """Integers whose steps are found at run time, and operators on integers."""
    to = lambda x, y, kind=TensorProto.FLOAT: node("Cast", [x], [y], to=kind)
    product = [node("Reshape", ["t", "r"], ["v"]), node("DynamicQuantizeLinear", ["v"], ["q", "s", "p"])]
    weights = [of("w", np.random.default_rng(3).integers(-90, 90, (8, 5)), np.int8), of("ws", 0.01), of("wz", 3, np.int8)]
    rows = of("r", [1, 32, 8], np.int64)
    real = [to("i", "f"), node("Mul", ["s", "ws"], ["m"]), node("Mul", ["f", "m"], ["y"])]
    yield "MatMulInteger", [*product, node("MatMulInteger", ["q", "w", "p", "wz"], ["i"]), *real], [rows, *weights]
    kernel = of("w", np.random.default_rng(4).integers(-90, 90, (6, 4, 3, 3)), np.int8)
    nodes = [node("DynamicQuantizeLinear", ["t"], ["q", "s", "p"]), node("ConvInteger", ["q", "w", "p", "wz"], ["i"], pads=[1, 1, 1, 1])]
    yield "ConvInteger", [*nodes, *real], [kernel, of("ws", 0.01), of("wz", 0, np.int8)]
    steps = [of("qs", 0.02), of("qz", -5, np.int8)]
    rounded = node("QuantizeLinear", ["t", "qs", "qz"], ["q"])
    back = node("DequantizeLinear", ["k", "qs", "qz"], ["y"])
    yield "Relu of int8", [rounded, node("Relu", ["q"], ["k"]), back], steps
    yield "Cast of int8", [rounded, to("q", "f"), node("Tanh", ["f"], ["y"])], steps
    yield "ArgMax of int8", [rounded, node("ArgMax", ["q"], ["a"], axis=1), to("a", "y")], steps
    clip = node("Clip", ["q", "low", "high"], ["k"])
    yield "Clip of int8", [rounded, clip, back], [*steps, of("low", -20, np.int8), of("high", 30, np.int8)]


def joined(floats, of, node, random):
    """Operators that onnxruntime's optimisation joins."""
    own = lambda kind, inputs, outputs=("y",), **attributes: node(kind, inputs, outputs, domain="com.microsoft", **attributes)
    weights = [floats("w", 5, 4, 3, 3), floats("z", 5)]
    for activation, parameters in [("Relu", {}), ("HardSigmoid", {"activation_params": [0.3, 0.4]}), ("Clip", {"activation_params": [-3.0, 4.0]})]:
        attributes = {"activation": activation, "pads": [1, 1, 1, 1], **parameters}
        yield f"FusedConv {activation}", [own("FusedConv", ["t", "w", "z"], **attributes)], weights
    nodes = [node("Conv", ["t", "w"], ["c"], pads=[1, 1, 1, 1]), own("FusedConv", ["t", "w", "z", "c"], activation="Relu", pads=[1, 1, 1, 1])]
    yield "FusedConv and a sum", nodes, weights
    yield "FusedMatMul", [own("FusedMatMul", ["t", "w"], transB=1, alpha=0.3)], [floats("w", 5, 8)]
    for kind, inputs in [("Gelu", 1), ("BiasGelu", 2), ("FastGelu", 1), ("FastGelu", 2), ("QuickGelu", 1)]:
        yield f"{kind} {inputs}", [own(kind, ["t", "b"][:inputs])], [floats("b", 8)][: inputs - 1]
    turn, rows = node("Reshape", ["t", "r"], ["q"]), of("r", [1, 32, 8], np.int64)
    gains = [rows, floats("o", 1, 32, 8), floats("g", 8), floats("b", 8), floats("c", 8)]
    yield "SkipLayerNormalization", [turn, own("SkipLayerNormalization", ["q", "o", "g", "b", "c"], epsilon=1e-3)], gains
    nodes = [turn, own("SkipLayerNormalization", ["q", "o", "g", "b"], ["n", "", "", "sum"]), node("Mul", ["n", "sum"], ["y"])]
    yield "SkipLayerNormalization and its sum", nodes, gains[:4]
    yield "SkipSimplifiedLayerNormalization", [turn, own("SkipSimplifiedLayerNormalization", ["q", "o", "g"])], gains[:3]
    yield "SimplifiedLayerNormalization", [turn, node("SimplifiedLayerNormalization", ["q", "g"], ["y"], axis=-1)], [rows, gains[2]]
    packed = of("w", random.integers(0, 256, (6, 1, 8)), np.uint8)
    for zero in [[], [of("p", random.integers(0, 16, 6), np.uint8)]]:
        nodes = [turn, own("MatMulNBits", ["q", "w", "s", *(["p"] if zero else [])], K=8, N=6, bits=4, block_size=16)]
        yield f"MatMulNBits {len(zero)}", nodes, [rows, packed, of("s", random.uniform(0.01, 0.1, 6)), *zero]
    bytes_ = [rows, of("w", random.integers(-90, 90, (8, 5)), np.int8), of("ws", 0.01), of("wz", 3, np.int8), floats("b", 5)]
    yield "DynamicQuantizeMatMul", [turn, own("DynamicQuantizeMatMul", ["q", "w", "ws", "wz", "b"])], bytes_
    nodes = [turn, node("DynamicQuantizeLinear", ["q"], ["u", "s", "p"])]
    yield "MatMulIntegerToFloat", [*nodes, own("MatMulIntegerToFloat", ["u", "w", "s", "ws", "p", "wz", "b"])], bytes_


def chosen(of, random):
    """Boxes that NonMaxSuppression chooses of 64 of two classes, and what stands behind it: a row for each."""
    node = helper.make_node
    # Four at each of 16 places, nearly the same: rounding changes no choice.
    first = np.repeat(10 * np.stack(np.meshgrid(range(4), range(4)), -1).reshape(1, 16, 2), 4, 1) + random.uniform(0, 0.5, (1, 64, 2))
    size = random.uniform(6, 6.5, (1, 64, 2))
    constants = {"corners": np.concatenate([first, first + size], 2), "centers": np.concatenate([first, size], 2), "score": random.uniform(0, 1, (1, 2, 64)), "step": 0.01, "most": np.array([20]), "overlap": 0.45}
    constants |= {"least": 0.3, "s": np.array([1, 64, 4]), "third": np.array([2]), "flat": np.array([-1]), "none": 1.5}
    kind = lambda value: np.int64 if np.asarray(value).dtype.kind == "i" else np.float32
    constants = [of(name, value, kind(value)) for name, value in constants.items()]
    for name, least, attributes in [("", "least", {}), (" by centers", "least", {"center_point_box": 1}), (" without a least score", "", {}), (" of none", "none", {})]:
        place = "centers" if attributes else "corners"
        moved = [node("Reshape", ["t", "s"], ["r"]), node("Mul", ["r", "step"], ["m"]), node("Add", ["m", place], ["boxes"])]
        picked = [*moved, node("NonMaxSuppression", ["boxes", "score", "most", "overlap", least], ["chosen"], **attributes)]
        yield f"NonMaxSuppression{name}", [*picked, node("Cast", ["chosen"], ["y"], to=TensorProto.FLOAT)], constants
        behind = [node("Gather", ["chosen", "third"], ["at"], axis=1), node("Reshape", ["at", "flat"], ["row"])]
        behind += [node("Gather", ["boxes", "row"], ["own"], axis=1), node("Relu", ["own"], ["y"])]
        yield f"NonMaxSuppression and Gather{name}", [*picked, *behind], constants


def recurrent(of, random):
    """Recurrent networks over 8 steps of 4 rows, with all that ONNX says of them; every output."""
    node, [steps, rows, inputs, units] = helper.make_node, [8, 4, 8, 6]
    gates, states = {"RNN": 1, "GRU": 3, "LSTM": 4}, {"RNN": ["tanh"], "GRU": ["sigmoid", "tanh"], "LSTM": ["sigmoid", "tanh", "tanh"]}
    plain = {"lengths": None, "states": False, "peepholes": False, "direction": "forward"}
    lengths, odd = [8, 3, 1, 5], {"activation_alpha": [0.3, 0.7], "activation_beta": [0.4, 0.6]}
    for kind, name, options in [
        *((kind, "plain", {}) for kind in gates),
        *((kind, "both ways", {"direction": "bidirectional", "states": True}) for kind in gates),
        *((kind, "backwards with lengths", {"direction": "reverse", "lengths": lengths, "states": True}) for kind in gates),
        *((kind, "both ways with lengths", {"direction": "bidirectional", "lengths": lengths}) for kind in gates),
        *((kind, "clip", {"clip": 0.3}) for kind in gates),
        ("GRU", "reset late", {"linear_before_reset": 1, "direction": "bidirectional", "states": True}),
        ("LSTM", "peepholes", {"peepholes": True, "states": True, "direction": "bidirectional"}),
        ("LSTM", "coupled", {"input_forget": 1}),
        ("LSTM", "functions", {"activations": ["HardSigmoid", "ScaledTanh", "Softsign"], **odd}),
        ("GRU", "functions", {"activations": ["HardSigmoid", "ScaledTanh"], **odd}),
        ("RNN", "functions", {"activations": ["Affine", "LeakyRelu"], "direction": "bidirectional", "activation_alpha": [0.5, 0.2], "activation_beta": [0.1]}),
    ]:
        given = {**plain, **options}
        ways, count = 2 if given["direction"] == "bidirectional" else 1, gates[kind] * units
        floats = lambda *shape: random.normal(0, 0.5, shape).astype(np.float32)
        constants = {"w": floats(ways, count, inputs), "r": floats(ways, count, units), "b": floats(ways, 2 * count)}
        names = ["a", "w", "r", "b", "", "", "", ""]
        if given.pop("lengths"):
            names[4], constants["n"] = "n", np.array(lengths, np.int32)
        if given.pop("states"):
            names[5], constants["h"] = "h", floats(ways, rows, units)
            if kind == "LSTM":
                names[6], constants["c"] = "c", floats(ways, rows, units)
        if given.pop("peepholes"):
            names[7], constants["p"] = "p", floats(ways, 3 * units)
        while not names[-1]:
            names.pop()
        made = ["all", "last", "cells"][: 3 if kind == "LSTM" else 2]
        nodes = [node("Reshape", ["t", "s"], ["a"]), node(kind, names, made, hidden_size=units, **given)]
        nodes += [node("Reshape", [name, "flat"], [f"{name}.flat"]) for name in made]
        nodes.append(node("Concat", [f"{name}.flat" for name in made], ["y"], axis=0))
        constants |= {"s": np.array([steps, rows, inputs]), "flat": np.array([-1])}
        yield f"{kind} {name}", nodes, [of(name, value, value.dtype) for name, value in constants.items()]


def write(path, nodes, constants):
    one = numpy_helper.from_array(np.eye(4, dtype=np.float32).reshape(4, 4, 1, 1), "one")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 4, 8, 8])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    nodes = [helper.make_node("Conv", ["x", "one"], ["t"]), *nodes]
    graph = helper.make_graph(nodes, "g", [x], [y], [one, *constants])
    recent = any(n.op_type in ("Attention", "DFT") or n.op_type == "AveragePool" and any(a.name == "dilations" for a in n.attribute) for n in nodes)
    opset = 23 if recent else 17
    domains = ["com.microsoft"] if any(n.domain for n in nodes) else []
    imports = [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in domains)]
    onnx.save(helper.make_model(graph, opset_imports=imports, ir_version=10), path)


def optimized(folder):
    """Small networks as onnxruntime saves them, and as it quantises them at run time: name, path and an image."""
    import onnxruntime
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

    import coverage_small

    class Reader(CalibrationDataReader):
        def __init__(self, given):
            self.given = iter([given])

        def get_next(self):
            return next(self.given, None)

    def saved(source, level):
        options = onnxruntime.SessionOptions()
        options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_ENABLE_{level}")
        path = source.with_suffix(f".{level.lower()}.onnx")
        options.optimized_model_filepath, options.log_severity_level = str(path), 3
        return path, onnxruntime.InferenceSession(str(source), options, providers=["CPUExecutionProvider"])

    for network in ["preact", "squeeze_excite", "conv1d", "yolo"]:
        own = folder / network
        own.mkdir(exist_ok=True)
        coverage_small.export(coverage_small.NETS[network], own)
        source, values = own / "classic/model.onnx", np.load(own / "classic/test.0.npy")[:1]
        path, session = saved(source, "EXTENDED")
        yield f"{network}, optimised", path, values
        # Two roundings of the same values, one of them by the values' own range, tell deep networks of chance apart.
        if network != "yolo":
            quantize_dynamic(str(source), str(own / "dynamic.onnx"), weight_type=QuantType.QInt8)
            yield f"{network}, quantised at run time", own / "dynamic.onnx", values
        reader = Reader({session.get_inputs()[0].name: values})
        quantize_static(str(source), str(own / "int8.onnx"), reader, quant_format=QuantFormat.QDQ)
        # Channels last: a Resize of these, and a mean over such a sequence, are refused.
        for level in ["EXTENDED", "ALL"][: 1 if network in ("yolo", "conv1d") else 2]:
            yield f"{network}, int8, {level.lower()}", saved(own / "int8.onnx", level)[0], values


def failures(vta, folder):
    """What isn't as it should be, a line each."""
    import onnxruntime

    folder.mkdir(parents=True, exist_ok=True)
    failed, counts = [], collections.Counter()

    def compare(name, path, x, expected):
        found, why = run(vta, path, x, folder)
        if found is None:
            counts["refused"] += 1
            return "" if any(word in " ".join(why.split()) for word in REFUSED) else f"refused: {why}"
        counts["ran"] += 1
        return fault(found, expected)

    for source, least in [(of_onnx(), LEAST_SHARE), (of_nodes(folder), LEAST_OF_NODES)]:
        counts.clear()
        for name, path, x, expected in source:
            if path.name != "node.onnx" and x.shape[:1] == expected.shape[:1] != (1,):
                path, x, expected = one_image(path, folder / "one.onnx"), x[:1], expected[:1]
            why = compare(name, path, x, expected)
            if why:
                failed.append(f"{name}: {why}")
        if counts["ran"] < least * counts.total():
            failed.append(f"only {counts['ran']} of {counts.total()} tests of ONNX run")
        print(f"operators: {counts['ran']} tests of ONNX ran, {counts['refused']} were refused")
    of_peer = lambda path: onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    for name, path, values in optimized(folder):
        session = of_peer(path)
        expected = session.run(None, {session.get_inputs()[0].name: values})
        found, why = run(vta, path, values, folder)
        expected = np.concatenate([value.ravel() for value in expected])
        why = f"refused: {why}" if found is None else fault(found, expected)
        if why:
            failed.append(f"{name}: {why}")
    values = np.random.default_rng(2).normal(0, 1, (1, 4, 8, 8)).astype(np.float32)
    for name, nodes, constants in made():
        path = folder / "made.onnx"
        write(path, nodes, constants)
        expected = of_peer(path).run(None, {"x": values})[0]
        found, why = run(vta, path, values, folder)
        why = f"refused: {why}" if found is None else fault(found, expected)
        if why:
            failed.append(f"{name}: {why}")
    return failed
