"""Networks that come quantised, through `vta` and onnxruntime: part of `scripts/coverage --small`.

Residual blocks saturate before and behind their sums: with `--requant precise` every value is onnxruntime's but beside
ties, with `fast` at most a step away. Outputs have the model's names, dimensions and types, whatever they are.
"""

import json
import subprocess

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

IMAGES = 4
# Of values that are rounded from floats: how many may be beside a tie, and fall to the other side.
TIES = 0.01


class Network:
    """Writes nodes one after another. `scales` holds those of values that were rounded."""

    def __init__(self, shape, seed=0):
        self.random = np.random.default_rng(seed)
        self.shape, self.nodes, self.constants, self.outputs, self.scales = shape, [], [], [], {}
        self.x = self.rounded("x", 1 / 32)

    def constant(self, value, kind=None):
        name, value = f"c{len(self.constants)}", np.asarray(value)
        tensor = numpy_helper.from_array(value, name) if kind is None else helper.make_tensor(name, kind, value.shape, value.ravel().tolist())
        self.constants.append(tensor)
        return name

    def add(self, kind, *inputs, name=None, **attributes):
        output = name or f"{kind}.{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [output], **attributes))
        return output

    def steps(self, x, scale, zero=np.int8(0), name=None):
        return self.add("QuantizeLinear", x, self.constant(np.float32(scale)), self.constant(zero), name=name)

    def rounded(self, x, scale, zero=np.int8(0), name=None):
        steps = self.steps(x, scale, zero)
        real = self.add("DequantizeLinear", steps, *self.nodes[-1].input[1:], name=name)
        self.scales[real] = scale
        return real

    def conv(self, x, channels, out, kernel=(3, 3)):
        weights = self.random.integers(-127, 128, (out, channels, *kernel)).astype(np.int8)
        scales = (2.0 ** self.random.uniform(-9, -7, out)).astype(np.float32)
        zeros = self.constant(np.zeros(out, np.int8))
        inputs = [self.constant(weights), self.constant(scales), zeros]
        weights = self.add("DequantizeLinear", *inputs, axis=0)
        pads = [size // 2 for size in kernel] * 2
        return self.add("Conv", x, weights, kernel_shape=kernel, pads=pads)

    def output(self, name, shape, element=TensorProto.FLOAT):
        self.outputs.append(helper.make_tensor_value_info(name, element, shape))
        return self

    def save(self, path):
        x = helper.make_tensor_value_info("x", TensorProto.FLOAT, self.shape)
        graph = helper.make_graph(self.nodes, "written", [x], self.outputs, self.constants)
        short = any(tensor.data_type in (TensorProto.INT4, TensorProto.UINT4) for tensor in self.constants)
        imports = [helper.make_opsetid("", 21 if short else 17), *(helper.make_opsetid(n.domain, 1) for n in self.nodes if n.domain)]
        model = helper.make_model(graph, opset_imports=imports, ir_version=10 if short else 8)
        onnx.checker.check_model(model)
        onnx.save(model, str(path))


def residual(seed):
    """A convolution that saturates, and its sum with the input or another convolution."""
    m = Network([1, 8, 6, 6], seed)
    zero = [np.int8(0), np.int8(-9), np.uint8(128), np.uint8(100)][seed % 4]
    scale = 2.0 ** m.random.uniform(-5, -3)
    conv = m.rounded(m.conv(m.x, 8, 8), scale * [0.47, 0.23, 0.11, 2.03][seed // 4 % 4 if seed < 12 else 1], zero)
    other = m.x if seed % 3 else m.rounded(m.conv(m.x, 8, 8, (1, 1)), scale / 1.93)
    total = m.add("Add", *([conv, other] if seed % 2 else [other, conv]))
    if seed % 5 < 3:
        total = m.add("Relu", total)
    y = m.rounded(total, scale, zero, "y")
    return m.output(y, [1, 8, 6, 6])


def forms():
    """Outputs that stand for one tensor, or of other dimensions and types than those of devices."""
    def plane():
        m = Network([1, 3, 8, 8], 1)
        return m, m.rounded(m.conv(m.x, 3, 8), 0.25, name="y")

    def row():
        m = Network([1, 4, 29], 2)
        return m, m.rounded(m.conv(m.x, 4, 64, (3,)), 0.25, name="y")

    made = {}
    for name, shape, more in [("twice", [1, 8, 8, 8], ("Identity",)), ("flat", [1, 512], ("Flatten",)),
                              ("reshaped", [1, 32, 16], ("Reshape", np.array([1, 32, 16], np.int64)))]:
        m, y = plane()
        other = m.add(more[0], y, *map(m.constant, more[1:]), name=f"/{name}/out")
        made[name] = m.output(y, [1, 8, 8, 8]).output(other, shape)
    m, y = plane()
    made["input"] = m.output(y, [1, 8, 8, 8]).output(m.x, [1, 3, 8, 8])
    m, y = row()
    made["sequence"] = m.output(y, [1, 64, 29])
    m, y = row()
    turned = m.rounded(m.add("Transpose", y, perm=[0, 2, 1]), 0.25, name="turned")
    made["tokens"] = m.output(turned, [1, 29, 64])
    for name, zero, element in [("int8", np.int8(3), TensorProto.INT8), ("uint8", np.uint8(77), TensorProto.UINT8)]:
        m = Network([1, 3, 8, 8], 1)
        made[name] = m.output(m.steps(m.conv(m.x, 3, 8), 0.25, zero, name="y"), [1, 8, 8, 8], element)
    return made


def behind():
    """What the host computes behind a network: states, and boxes of which it chooses some."""
    longs = lambda *values: np.array(values, np.int64)
    made = {}
    for kind, gates in [("LSTM", 4), ("GRU", 3)]:
        m = Network([1, 4, 24], 3)
        turned = m.add("Transpose", m.rounded(m.conv(m.x, 4, 8, (3,)), 0.25), perm=[2, 0, 1])
        weights = [m.constant(m.random.normal(0, 0.3, (2, gates * 6, size)).astype(np.float32)) for size in (8, 6)]
        states = [f"{kind}.all", f"{kind}.last"]
        m.nodes.append(helper.make_node(kind, [turned, *weights], states, hidden_size=6, direction="bidirectional"))
        for name, state, shape in [("all", states[0], [1, 24, 12]), ("last", states[1], [1, 2, 6])]:
            m.scales[m.add("Reshape", state, m.constant(longs(*shape)), name=name)] = 1 / 16
            m.output(name, shape)
        made[kind] = m
    m = Network([1, 3, 8, 8], 4)
    conv = m.rounded(m.conv(m.x, 3, 7), 0.25)
    cut = lambda first, last, rows: m.add("Reshape", m.add("Sigmoid", m.add("Slice", conv, *map(m.constant, [longs(first), longs(last), longs(1)]))), m.constant(longs(1, rows, 64)))
    grid = np.stack(np.meshgrid(range(8), range(8)), -1).reshape(1, 64, 2)
    grid = np.concatenate([grid - 1, grid + 1], 2).astype(np.float32)
    boxes = m.add("Add", m.add("Transpose", cut(0, 4, 4), perm=[0, 2, 1]), m.constant(grid))
    scores = cut(4, 7, 3)
    bounds = [m.constant(value) for value in [longs(5), np.float32(0.3), np.float32(0.6)]]
    chosen = m.add("NonMaxSuppression", boxes, scores, *bounds)
    at = m.add("Reshape", m.add("Gather", chosen, m.constant(longs(2)), axis=1), m.constant(longs(-1)))
    rows = m.add("Gather", boxes, at, axis=1)
    # As many rows as there may be, of which those behind the chosen ones are 0.
    count = m.add("Gather", m.add("Shape", chosen), m.constant(longs(0)))
    left = m.add("Sub", m.constant(longs(15)), count)
    pads = m.add("Concat", m.constant(longs(0, 0, 0, 0)), left, m.constant(longs(0)), axis=0)
    m.scales[m.add("Pad", rows, pads, name="rows")] = 1 / 64
    made["boxes"] = m.output("rows", [1, 15, 4])
    return made


def bits():
    """Weights and activations of 4 bits, in each form that there is; QONNX's beside what it means."""
    made = {}
    for name in ["int4", "uint4", "of constants", "QCDQ", "Quant"]:
        m = Network([1, 4, 8, 8], 5)
        kind, zero = (TensorProto.UINT4, 8) if name == "uint4" else (TensorProto.INT4, 0)
        whole = m.random.integers(-8, 8, (6, 4, 3, 3))
        scales = m.random.uniform(0.05, 0.1, 6).astype(np.float32)
        real = (whole * scales[:, None, None, None]).astype(np.float32)
        if name == "Quant":
            m.of = made["QCDQ"]
            quant = lambda x, scale: m.add("Quant", x, m.constant(scale), m.constant(np.float32(0)), m.constant(np.float32(4)),
                                           name="y" if np.ndim(scale) == 0 else None, domain="qonnx.custom_op.general", signed=1, narrow=0, rounding_mode="ROUND")
            y = quant(m.add("Conv", m.x, quant(m.constant(real), scales.reshape(6, 1, 1, 1)), pads=[1] * 4), np.float32(0.3))
        else:
            steps = lambda scale: [m.constant(scale), m.constant(np.full(np.shape(scale), zero, np.int8)) if name == "QCDQ" else m.constant(np.full(np.shape(scale), zero), kind)]
            few = steps(scales)
            clip = lambda x: m.add("Clip", x, m.constant(np.int8(-8)), m.constant(np.int8(7))) if name == "QCDQ" else x
            made_ints = clip(m.add("QuantizeLinear", m.constant(real), *few, axis=0)) if name in ("of constants", "QCDQ") else m.constant(whole + zero, kind)
            conv = m.add("Conv", m.x, m.add("DequantizeLinear", made_ints, *few, axis=0), pads=[1] * 4)
            few = steps(np.float32(0.3))
            y = m.add("DequantizeLinear", clip(m.add("QuantizeLinear", conv, *few)), *few, name="y")
        m.scales["y"] = 0.3
        made[name] = m.output(y, [1, 6, 8, 8])
    return made


def run(vta, path, folder, images, more):
    """All outputs by their names, and what the report says of them."""
    inputs, out = folder / "images.npy", folder / "out.npz"
    np.save(inputs, images)
    out.unlink(missing_ok=True)
    arguments = [vta, "run", path, "--input", inputs, "--preprocess", "raw", "--allow-host", "--verify", "--json", "-o", out, *more]
    done = subprocess.run(list(map(str, arguments)), capture_output=True, text=True, timeout=600)
    if done.returncode != 0:
        told = json.loads(done.stdout)["mismatches"][:2] if done.stdout else done.stderr.strip()[-300:]
        raise RuntimeError(told)
    return dict(np.load(out)), json.loads(done.stdout)["output_tensors"]


def peer(path, images):
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    rows = [session.run(None, {"x": images[k : k + 1]}) for k in range(len(images))]
    return {o.name: np.concatenate(values) for o, *values in zip(session.get_outputs(), *rows)}


def faults(network, vta, path, folder, requant):
    """How an answer differs from onnxruntime's."""
    network.save(path)
    images = (np.random.default_rng(7).standard_normal((IMAGES, *network.shape[1:])) * 2).astype(np.float32)
    if same := getattr(network, "of", None):
        same.save(path.with_name("same.onnx"))
    expected = peer(path.with_name("same.onnx") if same else path, images)
    try:
        found, told = run(vta, path, folder, images, ["--requant", requant])
    except Exception as error:
        return [str(error)]
    names = [name.lstrip("/") for name in expected]
    if list(found) != names:
        return [f"outputs {list(found)}, not {names}"]
    wrong = []
    for name, tensor, (own, value) in zip(names, told, expected.items()):
        described = {"name": own, "shape": list(value.shape[1:]), "element": value.dtype.name}
        if {key: tensor[key] for key in described} != described:
            wrong.append(f"the report says {tensor}, not {described}")
        if (found[name].shape, found[name].dtype) != (value.shape, value.dtype):
            wrong.append(f"{name}: {found[name].dtype}{found[name].shape}, not {value.dtype}{value.shape}")
            continue
        step = network.scales.get(own, 0.25) if value.dtype == np.float32 else 1
        far = np.abs(np.rint((found[name].astype(np.float64) - value) / step))
        if far.max() > 1 or (requant == "precise" and (far > 0).mean() > TIES):
            wrong.append(f"{name}: up to {far.max():.0f} steps from onnxruntime's, {(far > 0).sum()} of {far.size} values")
    return wrong


def check(vta, folder):
    """How many answers are onnxruntime's, and a line for each that isn't."""
    folder.mkdir(parents=True, exist_ok=True)
    networks = {f"residual {seed}": residual(seed) for seed in range(24)}
    networks.update({f"outputs {name}": network for name, network in forms().items()})
    networks.update({f"4 bits, {name}": network for name, network in bits().items()})
    networks.update({f"behind {name}": network for name, network in behind().items()})
    passed, failed = 0, []
    for name, network in networks.items():
        for requant in ("precise", "fast"):
            wrong = faults(network, vta, folder / "written.onnx", folder, requant)
            passed += not wrong
            failed += [f"{name}, {requant}: {fault}" for fault in wrong]
    return passed, failed
