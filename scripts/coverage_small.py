"""The networks of CI: small, seeded, and written with `onnx` alone, so that nothing needs PyTorch.

Each is written in the three forms that exporters use. `classic` is PyTorch's of TorchScript: constants are nodes, dense
layers Gemm. `dynamo` is PyTorch's of today: weights in a file beside the model, ReduceMean for average pools, Reshape.
`keras` is tf2onnx's: planes last outside and a Transpose behind the input, an open batch, SAME padding, MatMul and Add,
sequences as planes of one row, HardSwish and Flatten in parts.
"""

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

EXPORTERS = ["classic", "dynamo", "keras"]


def images(shape, count, seed):
    """Smooth noise and fine noise, as photos have both."""
    random = np.random.default_rng(seed)
    values = random.standard_normal((count, shape[0], *(size // 4 for size in shape[1:])))
    for axis in range(2, values.ndim):
        values = np.repeat(values, 4, axis)
    return (values + 0.1 * random.standard_normal((count, *shape))).astype(np.float32)


class Classic:
    """Writes layers one after another; `shapes` holds each value's, without the batch."""

    opset, ir, batch, entry = 17, 8, 1, "input"

    def __init__(self, shape, seed):
        self.random = np.random.default_rng(seed)
        self.nodes, self.weights, self.shapes, self.used = [], [], {}, {}
        self.inputs = [helper.make_tensor_value_info(self.entry, TensorProto.FLOAT, [self.batch, *shape])]
        self.shapes[self.entry] = shape
        self.input = self.entry

    # What forms differ in.

    def name(self, kind):
        return f"/m/{kind.lower()}.{self.count(kind)}/{kind}_output_0"

    def constant(self, value):
        """A constant that isn't a weight."""
        name = f"/m/Constant_{self.count('Constant')}_output_0"
        self.nodes.append(helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.asarray(value), "")))
        return name

    def pads(self, kernel, stride, dilation):
        around = dilation * (kernel // 2)
        return around, around

    def linear(self, x, features):
        inputs = [x, self.weight((features, self.shapes[x][0]), self.shapes[x][0]), self.small((features,))]
        return self.add("Gemm", inputs, (features,), alpha=1.0, beta=1.0, transB=1)

    def mean(self, x):
        """The mean of each channel, its rows and columns of one value."""
        return self.add("GlobalAveragePool", [x], (self.shapes[x][0], *[1] * len(self.shapes[x][1:])))

    def flatten(self, x):
        return self.add("Flatten", [x], (int(np.prod(self.shapes[x])),), axis=1)

    def hard_swish(self, x):
        return self.add("HardSwish", [x], self.shapes[x])

    def save(self, outputs, path):
        onnx.save(self.model(outputs), str(path))

    # What they share.

    def count(self, kind):
        self.used[kind] = self.used.get(kind, -1) + 1
        return self.used[kind]

    def weight(self, shape, fan_in):
        return self.initializer((self.random.standard_normal(shape) * np.sqrt(2 / fan_in)).astype(np.float32))

    def small(self, shape, middle=0.0):
        return self.initializer((middle + self.random.uniform(-0.3, 0.3, shape)).astype(np.float32))

    def initializer(self, value):
        name = f"m.{len(self.weights)}.weight"
        self.weights.append(numpy_helper.from_array(value, name))
        return name

    def add(self, kind, inputs, shape, **attributes):
        """A node with one output of that shape."""
        output = self.name(kind)
        self.nodes.append(helper.make_node(kind, inputs, [output], name=output.rsplit("_output", 1)[0], **attributes))
        self.shapes[output] = tuple(shape)
        return output

    def conv(self, x, out, kernel=3, stride=1, groups=1, dilation=1):
        channels, *sizes = self.shapes[x]
        count, (low, high) = len(sizes), self.pads(kernel, stride, dilation)
        inputs = [x, self.weight((out, channels // groups, *[kernel] * count), channels // groups * kernel**count)]
        shape = (out, *((size + low + high - dilation * (kernel - 1) - 1) // stride + 1 for size in sizes))
        return self.add("Conv", inputs + [self.small((out,))], shape, dilations=[dilation] * count, group=groups,
                        kernel_shape=[kernel] * count, pads=[low] * count + [high] * count, strides=[stride] * count)

    def transposed(self, x, out):
        channels, *sizes = self.shapes[x]
        inputs = [x, self.weight((channels, out, 2, 2), channels), self.small((out,))]
        return self.add("ConvTranspose", inputs, (out, *(2 * s for s in sizes)), dilations=[1, 1], group=1,
                        kernel_shape=[2, 2], pads=[0, 0, 0, 0], strides=[2, 2])

    def max_pool(self, x, kernel=2, stride=2, around=0):
        channels, *sizes = self.shapes[x]
        shape = (channels, *((s + 2 * around - kernel) // stride + 1 for s in sizes))
        return self.add("MaxPool", [x], shape, ceil_mode=0, kernel_shape=[kernel] * len(sizes),
                        pads=[around] * 2 * len(sizes), strides=[stride] * len(sizes))

    def norm(self, x):
        channels = self.shapes[x][:1]
        inputs = [x, self.small(channels, 1.0), self.small(channels), self.small(channels), self.small(channels, 1.0)]
        return self.add("BatchNormalization", inputs, self.shapes[x], epsilon=1e-5)

    def nearest(self, x):
        channels, *sizes = self.shapes[x]
        scales = self.constant(np.array([1, 1, 2, 2], np.float32))
        return self.add("Resize", [x, "", scales], (channels, *(2 * s for s in sizes)), mode="nearest",
                        coordinate_transformation_mode="asymmetric", nearest_mode="floor")

    def depth_to_space(self, x, block):
        channels, *sizes = self.shapes[x]
        shape = (channels // block**2, *(block * s for s in sizes))
        return self.add("DepthToSpace", [x], shape, blocksize=block, mode="CRD")

    def split(self, x):
        channels, *sizes = self.shapes[x]
        names = [self.name("Split"), self.name("Split")]
        halves = self.constant(np.array([channels // 2] * 2, np.int64))
        self.nodes.append(helper.make_node("Split", [x, halves], names, axis=1))
        self.shapes.update({name: (channels // 2, *sizes) for name in names})
        return names

    def concat(self, *xs):
        return self.add("Concat", xs, (sum(self.shapes[x][0] for x in xs), *self.shapes[xs[0]][1:]), axis=1)

    def relu(self, x):
        return self.add("Relu", [x], self.shapes[x])

    def silu(self, x):
        return self.add("Mul", [x, self.add("Sigmoid", [x], self.shapes[x])], self.shapes[x])

    def hard_sigmoid(self, x):
        return self.add("HardSigmoid", [x], self.shapes[x], alpha=1 / 6, beta=0.5)

    def sum(self, x, y):
        return self.add("Add", [x, y], self.shapes[x])

    def product(self, x, y):
        return self.add("Mul", [x, y], self.shapes[x])

    def model(self, outputs):
        values = [helper.make_tensor_value_info(o, TensorProto.FLOAT, [self.batch, *self.shapes[o]]) for o in outputs]
        graph = helper.make_graph(self.nodes, "main_graph", self.inputs, values, self.weights)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=self.ir)
        onnx.checker.check_model(model)
        return model


class Dynamo(Classic):
    opset, ir = 20, 10

    def name(self, kind):
        kind, number = kind.lower(), self.count(kind)
        return f"{kind}_{number}" if number else kind

    def constant(self, value):
        name = f"val_{self.count('val')}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def mean(self, x):
        axes = self.constant(np.arange(-len(self.shapes[x][1:]), 0, dtype=np.int64))
        shape = (self.shapes[x][0], *[1] * len(self.shapes[x][1:]))
        return self.add("ReduceMean", [x, axes], shape, keepdims=1, noop_with_empty_axes=0)

    def flatten(self, x):
        count = int(np.prod(self.shapes[x]))
        return self.add("Reshape", [x, self.constant(np.array([1, count], np.int64))], (count,), allowzero=1)

    def save(self, outputs, path):
        beside = path.name + ".data"
        (path.parent / beside).unlink(missing_ok=True)
        onnx.save(self.model(outputs), str(path), save_as_external_data=True, location=beside, size_threshold=256)


class Keras(Classic):
    opset, ir, batch, entry = 15, 8, "unk__1", "input_1"

    def __init__(self, shape, seed):
        super().__init__(shape, seed)
        if len(shape) > 1:
            self.inputs[0].CopyFrom(
                helper.make_tensor_value_info(self.entry, TensorProto.FLOAT, [self.batch, *shape[1:], shape[0]]))
            axes = [0, len(shape), *range(1, len(shape))]
            self.input = self.add("Transpose", [self.entry], shape, perm=axes)

    def name(self, kind):
        return f"StatefulPartitionedCall/model/{kind.lower()}_{self.count(kind)}/{kind}:0"

    def constant(self, value):
        name = f"const_{self.count('const')}__{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def pads(self, kernel, stride, dilation):
        around = max(dilation * (kernel - 1) + 1 - stride, 0)
        return around // 2, around - around // 2

    def rows(self, x, layer):
        """A layer of a sequence, as one of planes that have one row."""
        row = self.constant(np.array([2], np.int64))
        channels, size = self.shapes[x]
        plane = layer(self.add("Unsqueeze", [x, row], (channels, 1, size)))
        return self.add("Squeeze", [plane, row], (self.shapes[plane][0], self.shapes[plane][2]))

    def conv(self, x, out, kernel=3, stride=1, groups=1, dilation=1):
        if len(self.shapes[x]) == 3:
            return super().conv(x, out, kernel, stride, groups, dilation)
        return self.rows(x, lambda plane: self.row_conv(plane, out, kernel, stride, dilation))

    def row_conv(self, x, out, kernel, stride, dilation):
        (channels, _, size), (low, high) = self.shapes[x], self.pads(kernel, stride, dilation)
        inputs = [x, self.weight((out, channels, 1, kernel), channels * kernel), self.small((out,))]
        shape = (out, 1, (size + low + high - dilation * (kernel - 1) - 1) // stride + 1)
        return self.add("Conv", inputs, shape, dilations=[1, dilation], group=1, kernel_shape=[1, kernel],
                        pads=[0, low, 0, high], strides=[1, stride])

    def max_pool(self, x, kernel=2, stride=2, around=0):
        if len(self.shapes[x]) == 3:
            return super().max_pool(x, kernel, stride, around)
        shape = (self.shapes[x][0], 1, (self.shapes[x][1] + 2 * around - kernel) // stride + 1)
        return self.rows(x, lambda plane: self.add("MaxPool", [plane], shape, kernel_shape=[1, kernel],
                                                   pads=[0, around, 0, around], strides=[1, stride]))

    def linear(self, x, features):
        product = self.add("MatMul", [x, self.weight((self.shapes[x][0], features), self.shapes[x][0])], (features,))
        return self.add("Add", [product, self.small((features,))], (features,))

    def flatten(self, x):
        channels, *sizes = self.shapes[x]
        if max(sizes) == 1:
            axes = self.constant(np.arange(2, 2 + len(sizes), dtype=np.int64))
            return self.add("Squeeze", [x, axes], (channels,))
        count = channels * int(np.prod(sizes))
        last = self.add("Transpose", [x], (*sizes, channels), perm=[0, *range(2, 2 + len(sizes)), 1])
        return self.add("Reshape", [last, self.constant(np.array([-1, count], np.int64))], (count,))

    def hard_swish(self, x):
        shape, one = self.shapes[x], lambda value: self.constant(np.float32(value))
        clipped = self.add("Clip", [self.add("Add", [x, one(3)], shape), one(0), one(6)], shape)
        return self.add("Mul", [x, self.add("Mul", [clipped, one(1 / 6)], shape)], shape)


def mlp(m, x):
    return [m.linear(m.relu(m.linear(m.relu(m.linear(x, 64)), 32)), 10)]


def espcn(m, x):
    x = m.relu(m.conv(m.relu(m.conv(x, 32, 5)), 16))
    return [m.depth_to_space(m.conv(x, 4), 2)]


def preact(m, x):
    x = m.conv(x, 16)
    y = m.relu(m.norm(x))
    x = m.sum(m.conv(m.relu(m.conv(y, 16)), 16), x)
    y = m.relu(m.norm(x))
    x = m.sum(m.conv(m.relu(m.conv(y, 32, stride=2)), 32), m.conv(y, 32, 1, 2))
    return [m.linear(m.flatten(m.mean(m.relu(m.norm(x)))), 10)]


def unet(m, x, up):
    high = m.relu(m.conv(x, 16))
    low = m.relu(m.conv(m.max_pool(high), 32))
    return [m.conv(m.relu(m.conv(m.concat(up(low), high), 16)), 4, 1)]


def unet_nearest(m, x):
    return unet(m, x, lambda low: m.nearest(m.conv(low, 16, 1)))


def unet_transposed(m, x):
    return unet(m, x, lambda low: m.transposed(low, 16))


def yolo(m, x):
    """A stage that splits and joins channels, pools of one size joined, and two scales of boxes."""
    x = m.silu(m.conv(x, 16, stride=2))
    left, right = m.split(m.silu(m.conv(x, 32, 1)))
    high = m.silu(m.conv(m.concat(left, right, m.sum(right, m.silu(m.conv(right, 16)))), 32, 1))
    low = m.silu(m.conv(high, 16, stride=2))
    once = m.max_pool(low, 5, 1, 2)
    low = m.silu(m.conv(m.concat(low, once, m.max_pool(once, 5, 1, 2)), 32, 1))
    return [m.conv(m.concat(m.nearest(low), high), 20, 1), m.conv(low, 20, 1)]


def squeeze_excite(m, x):
    x = m.relu(m.conv(x, 32, stride=2))
    gate = m.hard_sigmoid(m.conv(m.relu(m.conv(m.mean(x), 8, 1)), 32, 1))
    return [m.linear(m.flatten(m.max_pool(m.conv(m.product(x, gate), 16))), 10)]


def conv1d(m, x):
    x = m.max_pool(m.relu(m.conv(x, 16, 5, 2)))
    return [m.linear(m.flatten(m.mean(m.relu(m.conv(x, 32, 3, dilation=2)))), 5)]


def depthwise(m, x):
    x = m.hard_swish(m.conv(x, 16, stride=2))
    y = m.hard_swish(m.conv(m.hard_swish(m.conv(x, 32, 1)), 32, 5, groups=32))
    return [m.linear(m.flatten(m.mean(m.sum(x, m.conv(y, 16, 1)))), 10)]


def heads(m, x):
    """Boxes and scores of other sizes, which a last Concat joins, and a second output."""
    x = m.relu(m.conv(x, 32, stride=2))
    boxes = m.conv(x, 4, 1)
    boxes = m.product(boxes, m.constant(np.float32(40)))
    return [m.concat(boxes, m.hard_sigmoid(m.conv(x, 12, 1))), m.linear(m.flatten(m.mean(x)), 10)]


PLANES = (3, 16, 16)
NETS = {
    mlp: (40,), espcn: (1, 16, 16), preact: PLANES, unet_nearest: PLANES, unet_transposed: PLANES,
    yolo: (3, 32, 32), squeeze_excite: PLANES, conv1d: (1, 64), depthwise: PLANES,
    heads: PLANES,
}
NETS = {net.__name__: (net, shape) for net, shape in NETS.items()}


# Operators of the host: the Sigmoid and the product of each of yolo's SiLUs, the Concat of heads. In `keras` also the
# Transpose behind the input of planes and before Flatten, and what makes planes of a sequence.
HOST = {"yolo": 12, "heads": 1}
HOST_KERAS = {"mlp": 0, "yolo": 13, "squeeze_excite": 2, "conv1d": 9}


def bounds(name, exporter):
    """These networks are too shallow to amplify a step."""
    most = HOST_KERAS.get(name, 1) if exporter == "keras" else HOST.get(name, 0)
    return {"host_most": most, "least_to_peer": 0.999}


def networks(folder):
    return NETS


def export(network, folder):
    """Writes a folder for each form with the network's file and its samples."""
    write, shape = network
    for exporter, form in zip(EXPORTERS, [Classic, Dynamo, Keras]):
        into = folder / exporter
        into.mkdir(parents=True, exist_ok=True)
        model = form(shape, 1)
        model.save(write(model, model.input), into / "model.onnx")
        for what, seed in [("calibration", 8), ("test", 9)]:
            values = images(shape, 8, seed)
            values = np.moveaxis(values, 1, -1) if exporter == "keras" and len(shape) > 1 else values
            np.save(into / f"{what}.0.npy", np.ascontiguousarray(values))
        # What an earlier run made of another file.
        for kept in ("prepared.onnx", "ranges.json"):
            (into / kept).unlink(missing_ok=True)
    return {}
