"""Makes the models and the expected outputs beside it: a small network, quantised by onnxruntime.

Needs numpy, onnx and onnxruntime. `python make.py` writes NAME.onnx, inputs.npy (float32) and
NAME.npy (what onnxruntime computes without graph optimisation, float32, one row an image).
"""

import os

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

HERE = os.path.dirname(os.path.abspath(__file__))
IMAGES = 6
RNG = np.random.default_rng(7)


def network():
    """Padded, strided, grouped and dense layers, a residual, and pools of each kind."""
    nodes, weights = [], []

    def constant(name, shape, spread):
        values = RNG.normal(0.05, spread, shape).astype(np.float32)
        weights.append(numpy_helper.from_array(values, name))
        return name

    def conv(name, x, ci, co, kernel, stride, pad, group=1):
        spread = 1.6 / np.sqrt(ci // group * kernel * kernel)
        w = constant(f"{name}.w", (co, ci // group, kernel, kernel), spread)
        b = constant(f"{name}.b", (co,), 0.2)
        nodes.append(helper.make_node("Conv", [x, w, b], [name], name, kernel_shape=[kernel] * 2,
                                      strides=[stride] * 2, pads=[pad] * 4, group=group))
        return name

    def node(op, inputs, name, **attributes):
        nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    x = node("Relu", [conv("c1", "x", 3, 8, 3, 1, 1)], "r1")
    x = node("MaxPool", [x], "m1", kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    a = node("Relu", [conv("c2", x, 8, 20, 3, 1, 1)], "r2")
    b = conv("c3", a, 20, 20, 5, 1, 2, group=20)
    x = node("Relu", [node("Add", [a, b], "a1")], "r3")
    x = node("AveragePool", [x], "p1", kernel_shape=[3, 3], strides=[1, 1], pads=[1, 1, 1, 1],
             count_include_pad=1)
    x = conv("c4", x, 20, 18, 3, 2, 1)
    x = node("GlobalAveragePool", [x], "g1")
    x = node("Flatten", [x], "f1")
    w, b = constant("d.w", (18, 10), 0.4), constant("d.b", (10,), 0.1)
    node("Gemm", [x, w, b], "y")
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def integers():
    """Sums of products as integers, which the file itself makes reals of."""
    nodes, weights = [], []

    def constant(name, values):
        weights.append(numpy_helper.from_array(values, name))
        return name

    def node(op, inputs, name, **attributes):
        nodes.append(helper.make_node(op, inputs, [name], name, **attributes))
        return name

    def quantized(x, name, scale, zero):
        scale = constant(f"{name}.s", np.float32(scale))
        zero = constant(f"{name}.z", np.uint8(zero))
        q = node("QuantizeLinear", [x, scale, zero], f"{name}.q")
        return q, zero, node("DequantizeLinear", [q, scale, zero], f"{name}.r")

    q, zero, _ = quantized("x", "i", 0.01, 90)
    w = constant("c.w", RNG.integers(0, 256, (8, 3, 3, 3)).astype(np.uint8))
    y = node("ConvInteger", [q, w, zero, constant("c.z", np.uint8(120))], "c", pads=[1, 2, 0, 1],
             strides=[2, 2], kernel_shape=[3, 3])
    y = node("Mul", [node("Cast", [y], "c.f", to=TensorProto.FLOAT), constant("c.k", np.float32(2e-5))], "c.r")
    _, _, y = quantized(node("Relu", [y], "r"), "a", 0.008, 0)
    q, zero, _ = quantized(node("Flatten", [node("GlobalAveragePool", [y], "g")], "f"), "b", 0.005, 3)
    w = constant("d.w", RNG.integers(-128, 128, (8, 10)).astype(np.int8))
    y = node("MatMulInteger", [q, w, zero], "d")
    y = node("Mul", [node("Cast", [y], "d.f", to=TensorProto.FLOAT), constant("d.k", np.float32(4e-4))], "d.r")
    q = quantized(y, "o", 0.06, 131)[2]
    node("Identity", [q], "y")
    graph = helper.make_graph(
        nodes, "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 12, 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 10])], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


class Images(CalibrationDataReader):
    def __init__(self, images):
        self.images = iter(images)

    def get_next(self):
        image = next(self.images, None)
        return None if image is None else {"x": image}


FORMS = {
    # Activations, weights, form, by channel.
    "uint8-int8": (QuantType.QUInt8, QuantType.QInt8, QuantFormat.QDQ, False),
    "int8": (QuantType.QInt8, QuantType.QInt8, QuantFormat.QDQ, True),
    "uint8": (QuantType.QUInt8, QuantType.QUInt8, QuantFormat.QDQ, False),
    "uint16": (QuantType.QUInt16, QuantType.QInt8, QuantFormat.QDQ, False),
    "int16": (QuantType.QInt16, QuantType.QInt8, QuantFormat.QDQ, True),
    "operators": (QuantType.QUInt8, QuantType.QInt8, QuantFormat.QOperator, True),
    "operators-uint8": (QuantType.QUInt8, QuantType.QUInt8, QuantFormat.QOperator, False),
}


def main():
    images = [RNG.uniform(-0.6, 1.4, (1, 3, 12, 12)).astype(np.float32) for _ in range(IMAGES)]
    np.save(os.path.join(HERE, "inputs.npy"), np.concatenate(images))
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    floating = os.path.join(HERE, "float.onnx")
    onnx.save(network(), floating)
    session = ort.InferenceSession(floating, options)
    truth = np.concatenate([session.run(None, {"x": image})[0] for image in images])
    for name, (activation, weight, form, by_channel) in FORMS.items():
        path = os.path.join(HERE, f"{name}.onnx")
        quantize_static(floating, path, Images(images), quant_format=form, per_channel=by_channel,
                        activation_type=activation, weight_type=weight)
        model = onnx.load(path)
        del model.graph.value_info[:]
        onnx.save(model, path)
        session = ort.InferenceSession(path, options)
        found = np.concatenate([session.run(None, {"x": image})[0] for image in images])
        np.save(os.path.join(HERE, f"{name}.npy"), found)
        report(name, path, found, truth, model)
    path = os.path.join(HERE, "integers.onnx")
    model = integers()
    onnx.save(model, path)
    session = ort.InferenceSession(path, options)
    found = np.concatenate([session.run(None, {"x": image})[0] for image in images])
    np.save(os.path.join(HERE, "integers.npy"), found)
    print("integers", os.path.getsize(path), found[0])
    os.remove(floating)


def report(name, path, found, truth, model):
    cosine = (found * truth).sum(1) / np.linalg.norm(found, axis=1) / np.linalg.norm(truth, axis=1)
    print(name, os.path.getsize(path), cosine.min(), sorted({n.op_type for n in model.graph.node}))


if __name__ == "__main__":
    main()
