"""Parts of models by `vta cut` beside those of onnx.utils.extract_model: part of `scripts/coverage --small`.

A part has the same nodes and constants, and gives the same values in onnxruntime.
"""

import subprocess

import numpy as np
import onnx
import onnx.utils
import onnxruntime as ort

# So many cuts are made of each file.
CUTS = 4


def made(model):
    """Values that nodes compute from the model's inputs, in their order."""
    known = {value.name for value in model.graph.input} - {tensor.name for tensor in model.graph.initializer}
    values = []
    for node in model.graph.node:
        if known.intersection(node.input):
            known.update(node.output)
            values.append(node.output[0])
    return values


def reached(model, inputs, outputs):
    """The values that the outputs are computed from, back to the inputs, and whether these determine them."""
    makers = {output: node for node in model.graph.node for output in node.output}
    ends = {value.name for value in model.graph.input} - {tensor.name for tensor in model.graph.initializer}
    open_, seen = list(outputs), set()
    while open_:
        name = open_.pop()
        if name in seen:
            continue
        seen.add(name)
        if name not in inputs and name in ends:
            return seen, False
        if name not in inputs and name in makers:
            open_ += [read for read in makers[name].input if read]
    return seen, True


def cuts(model, draw):
    """Pairs of inputs and outputs that can be cut, some chosen at random."""
    values = made(model)
    entry = [value.name for value in model.graph.input if value.name not in {tensor.name for tensor in model.graph.initializer}]
    middle = [values[len(values) // 2]]
    seen, _ = reached(model, entry, middle)
    found = [([name for name in entry if name in seen], middle)]
    for _ in range(200):
        first, last = sorted(draw.choice(len(values), 2, replace=False))
        pair = ([values[first]], [values[last]])
        seen, determined = reached(model, *pair)
        if len(found) < CUTS and determined and seen.issuperset(pair[0]):
            found.append(pair)
    return found


def session(model):
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 3
    return ort.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])


def results(path, draw_seed):
    run = session(path)
    draw = np.random.default_rng(draw_seed)
    feed = {}
    for value in run.get_inputs():
        shape = [size if isinstance(size, int) and size > 0 else 1 for size in value.shape]
        whole = {"tensor(int8)": np.int8, "tensor(uint8)": np.uint8}.get(value.type)
        feed[value.name] = draw.integers(0, 100, shape).astype(whole) if whole else draw.normal(size=shape).astype(np.float32)
    try:
        return run.run(None, feed)
    except Exception as error:
        # Where a file leaves a dimension open, one that was made up may not do: for either part.
        return [np.array(str(error).partition("Status Message")[2])]


def stated(path, names):
    """Whether a file says the types of values."""
    graph = onnx.load(path).graph
    return {value.name for value in [*graph.input, *graph.output, *graph.value_info]}.issuperset(names)


def refusal(path):
    """Why onnx's checker refuses a file; nothing where it doesn't."""
    try:
        onnx.checker.check_model(str(path))
    except onnx.checker.ValidationError as error:
        return str(error)
    return ""


def fault(vta, path, folder, inputs, outputs):
    """What is wrong with a part; nothing where it is the counterpart's."""
    ours, theirs = folder / "ours.onnx", folder / "theirs.onnx"
    command = [vta, "cut", path, "--inputs", ",".join(inputs), "--outputs", ",".join(outputs), "-o", ours]
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=120)
    if done.returncode:
        # A part begins only with values whose type is known; its own message says so.
        return "" if "neither the file says" in done.stderr and not stated(path, inputs) else done.stderr.strip()
    onnx.utils.extract_model(str(path), str(theirs), inputs, outputs, check_model=False)
    # The type of a value is what its file says: none where it says none, which onnx's checker refuses.
    if stated(path, [*inputs, *outputs]) and not refusal(path) and (text := refusal(ours)):
        return text
    pair = [onnx.load(part).graph for part in (ours, theirs)]
    nodes = [sorted(node.SerializeToString(deterministic=True) for node in graph.node) for graph in pair]
    if nodes[0] != nodes[1]:
        return f"{len(nodes[0])} nodes, onnx has {len(nodes[1])}, or others"
    constants = [{tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in graph.initializer} for graph in pair]
    # onnx keeps no more than nodes read, either.
    if constants[0].keys() != constants[1].keys():
        return f"other constants: {sorted(constants[0].keys() ^ constants[1].keys())[:3]}"
    if not all(np.array_equal(values, constants[1][name]) for name, values in constants[0].items()):
        return "constants have other values"
    got = [results(part, 1) for part in (ours, theirs)]
    return "" if all(np.array_equal(a, b) for a, b in zip(*got)) else "onnxruntime gives other values"


def failures(vta, models, folder):
    """What is wrong with parts of models; prints how many are right."""
    folder.mkdir(parents=True, exist_ok=True)
    draw, right, wrong = np.random.default_rng(0), 0, []
    for path in models:
        for inputs, outputs in cuts(onnx.load(path), draw):
            text = fault(vta, path, folder, inputs, outputs)
            if text:
                wrong.append(f"cut {path} from {', '.join(inputs)} to {', '.join(outputs)}: {text}")
            else:
                right += 1
    print(f"{right} parts by `vta cut` are those of onnx.utils.extract_model")
    return wrong if right else [*wrong, "vta cut: no part was compared"]
