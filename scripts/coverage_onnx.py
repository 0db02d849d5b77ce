"""ONNX's own tests of its operators, all of them, against the values that ONNX has; docs/onnx-tests.md is the list.

A test's inputs reach the program as numbers of one row, which the model gives their shape and type. Nothing rounds them: a
small network of int8 stands beside the operator, and the host computes the operator in floats. Operators that read or make
int8 tensors stand between a QuantizeLinear of what their input means and the model's end. What passes is as near as ONNX
asks, or for int8 within a step.

Each test is tried as it stands, then with constants for all inputs but the first, then with constants alone.
"""

import collections
import concurrent.futures
import os
import re
import subprocess
import tempfile
import textwrap
import warnings
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

warnings.filterwarnings("ignore")

PAGE = Path("docs/onnx-tests.md")
# Seconds that a command may take.
LIMIT = 60
# Steps that int8 values may be off.
STEPS = 1
# Tests whose values are a matter of chance.
CHANCE = {"Bernoulli", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial"}
# The least relative error that values of short floats have.
SHORT = {TensorProto.FLOAT16: 2e-3, TensorProto.BFLOAT16: 1e-2}
FLOATS = {TensorProto.FLOAT, TensorProto.DOUBLE, TensorProto.FLOAT16, TensorProto.BFLOAT16}
# What a test needed: how its inputs were given.
WAYS = {"inputs": "as it stands", "constants": "inputs but the first are constants", "folded": "all inputs are constants",
        "int8": "of int8 tensors"}


class Left(Exception):
    """Why a test can't be tried."""


def text(name):
    return TensorProto.DataType.Name(name).lower()


def of_cases():
    """All tests: name, model, inputs, outputs, relative and absolute tolerance."""
    from onnx.backend.test.case.node import collect_testcases

    for case in collect_testcases(None):
        inputs, outputs = ([array(value) for value in values] for values in case.data_sets[0])
        yield case.name, case.model, inputs, outputs, case.rtol, case.atol
    for path in sorted((Path(onnx.__file__).parent / "backend/test/data").glob("*/*/model.onnx")):
        model, data = onnx.load(path), path.parent / "test_data_set_0"
        read = lambda what: [data / f"{what}_{i}.pb" for i in range(len(list(data.glob(f"{what}_*.pb"))))]
        tensor = lambda file, value: loaded(file, value)
        constants = {t.name for t in model.graph.initializer}
        inputs = [value for value in model.graph.input if value.name not in constants]
        values = [[tensor(f, v) for f, v in zip(read(what), ends)] for what, ends in [("input", inputs), ("output", model.graph.output)]]
        yield path.parent.name, model, *values, 1e-3, 1e-7


def array(value):
    """A tensor of a test's values; anything else as it is."""
    return numpy_helper.to_array(value) if isinstance(value, TensorProto) else value


def loaded(file, value):
    """The tensor of a file, or None for what is none."""
    if value.type.WhichOneof("value") != "tensor_type":
        return None
    return numpy_helper.to_array(onnx.load_tensor(file))


class Wrapped:
    """A model around a test's."""

    def __init__(self, model):
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        graph = self.model.graph
        constants = {tensor.name for tensor in graph.initializer}
        self.inputs = [value for value in graph.input if value.name not in constants]
        self.before, self.behind, self.given, self.fed = [], [], [], {}
        del graph.input[:], graph.value_info[:]
        for what, value in [("scale", np.float32(1)), ("zero", np.int8(0)), ("much", np.float32(500)), ("single", np.zeros(0, np.int64))]:
            self.add(f"vta_{what}", value)

    def add(self, name, value):
        self.model.graph.initializer.append(numpy_helper.from_array(np.asarray(value), name))

    def feed(self, name, kind, values):
        values = np.asarray(values).reshape(1, -1)
        self.fed[name] = values
        self.given.append(helper.make_tensor_value_info(name, kind, values.shape))

    def network(self):
        """The small network of int8; a truth of it that is never true."""
        self.feed("vta_x", TensorProto.FLOAT, np.ones(1, np.float32))
        steps = ["vta_scale", "vta_zero"]
        self.before += [
            helper.make_node("QuantizeLinear", ["vta_x", *steps], ["vta_q"]),
            helper.make_node("DequantizeLinear", ["vta_q", *steps], ["vta_f"]),
            helper.make_node("Greater", ["vta_f", "vta_much"], ["vta_nevers"]),
            helper.make_node("Reshape", ["vta_nevers", "vta_single"], ["vta_never"]),
        ]

    def as_input(self, value, data):
        """An input, that reaches the operator as it is."""
        name, kind = value.name, value.type.tensor_type.elem_type
        wide = TensorProto.FLOAT if kind in FLOATS else TensorProto.INT64
        self.feed(f"vta_{name}_in", wide, data.astype(np.float32 if kind in FLOATS else np.int64))
        self.add(f"vta_{name}_shape", np.array(data.shape, np.int64))
        self.before.append(helper.make_node("Where", ["vta_never", f"vta_{name}_in", f"vta_{name}_in"], [f"vta_{name}_row"]))
        shaped = name if kind in FLOATS or kind == TensorProto.INT64 else f"vta_{name}_wide"
        self.before.append(helper.make_node("Reshape", [f"vta_{name}_row", f"vta_{name}_shape"], [shaped]))
        if shaped != name:
            self.before.append(helper.make_node("Cast", [shaped], [name], to=kind))

    def as_real(self, value, data):
        """A float input, that a QuantizeLinear reads."""
        real = np.asarray(data, np.float32)
        self.given.append(helper.make_tensor_value_info(value.name, TensorProto.FLOAT, real.shape))
        self.fed[value.name] = real

    def as_int8(self, name, data, scale, zero):
        """An int8 input, by what it means."""
        real = (data.astype(np.float32) - zero.astype(np.float32)) * scale
        scale, zero = (steps.ravel() if steps.ndim > 1 else steps for steps in [scale, zero])
        self.given.append(helper.make_tensor_value_info(f"vta_{name}_in", TensorProto.FLOAT, real.shape))
        self.fed[f"vta_{name}_in"] = real
        self.add(f"vta_{name}_scale", scale), self.add(f"vta_{name}_zero", zero)
        self.before.append(helper.make_node("QuantizeLinear", [f"vta_{name}_in", f"vta_{name}_scale", f"vta_{name}_zero"], [name]))

    def folded(self, output, kind):
        """An output of constants, moved by nothing to what depends on an input."""
        graph = self.model.graph
        for node in graph.node:
            node.output[:] = [f"{name}_made" if name == output else name for name in node.output]
        made, what = f"{output}_made", f"{output}_behind"
        if kind == TensorProto.BOOL:
            self.behind.append(helper.make_node("Cast", [made], [f"{made}_wide"], to=TensorProto.INT32))
            made = f"{made}_wide"
        self.behind.append(helper.make_node("Where", ["vta_never", made, made], [what]))
        self.behind.append(helper.make_node("Identity", [what], [output]))

    def save(self, path):
        graph = self.model.graph
        nodes = [*self.before, *graph.node, *self.behind]
        del graph.node[:]
        graph.node.extend(nodes)
        graph.input.extend(self.given)
        for value in graph.output:
            value.type.tensor_type.ClearField("shape")
        onnx.save(self.model, path)


def run(vta, wrapped, folder):
    """What the program computes, or why it refuses."""
    path, made = folder / "node.onnx", folder / "made.npz"
    wrapped.save(path)
    made.unlink(missing_ok=True)
    command = [vta, "run", path, "--preprocess", "raw", "--allow-host", "--threads", "1", "-o", made]
    for index, (name, values) in enumerate(wrapped.fed.items()):
        np.save(folder / f"{index}.npy", values)
        command += ["--input", f"{name}={folder / f'{index}.npy'}"]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=LIMIT)
    if done.returncode == 1 or done.returncode == 2:
        return None, done.stderr.strip()
    if done.returncode:
        raise AssertionError(f"the program ended with {done.returncode}: {done.stderr[-300:]}")
    with np.load(made) as arrays:
        return {name: arrays[name] for name in arrays.files}, ""


def fault(found, expected, kind, rtol, atol, steps):
    """Why an output isn't what ONNX has; nothing where it is."""
    expected = np.asarray(expected)
    # What a run may give and doesn't is -1, behind what it gives.
    inner = found[tuple(slice(size) for size in (1, *expected.shape)[-found.ndim :])] if found.ndim else found
    if found.ndim >= expected.ndim and inner.size < found.size and np.count_nonzero(found == -1) - np.count_nonzero(inner == -1) == found.size - inner.size:
        found = inner
    # Images stand along a first dimension, in the place of a batch of 1.
    batch = expected.shape[:1] == (1,) and found.ndim == expected.ndim
    shape = expected.shape if batch else (1, *expected.shape)
    if found.shape != shape and not (steps is not None and found.size == expected.size):
        return f"shape {list(found.shape)}, not {list(shape)}"
    found, expected = found.astype(np.float64).ravel(), expected.astype(np.float64).ravel()
    if steps is not None and kind not in FLOATS:
        off = np.abs(found - expected).max(initial=0)
        return f"off by {off:g} steps" if off > steps else ""
    if kind not in FLOATS:
        off = np.count_nonzero(found != expected)
        return f"{off} of {expected.size} values differ: {found[:6]} not {expected[:6]}" if off else ""
    near = np.isclose(found, expected, rtol=max(rtol, SHORT.get(kind, 0)), atol=max(atol, 1e-6), equal_nan=True)
    if near.all():
        return ""
    at = np.flatnonzero(~near)[0]
    return f"{np.count_nonzero(~near)} of {near.size} values differ: {found[at]:g}, not {expected[at]:g}"


def tensors(model, inputs, outputs):
    """Refuses tests that are of no tensors of numbers.

    Raises:
        Left: why.
    """
    kinds = set()
    constants = {tensor.name for tensor in model.graph.initializer}
    for value in [*(v for v in model.graph.input if v.name not in constants), *model.graph.output]:
        what = value.type.WhichOneof("value")
        if what != "tensor_type":
            raise Left(f"it has a {what.removesuffix('_type')}, no tensor")
        kinds.add(value.type.tensor_type.elem_type)
    other = kinds - FLOATS - {TensorProto.INT8, TensorProto.UINT8, TensorProto.INT32, TensorProto.INT64, TensorProto.BOOL}
    if other:
        raise Left(f"it has a tensor of {text(min(other))}")
    if any(value is None for value in [*inputs, *outputs]):
        raise Left("it has an optional that is empty")
    for value in [*inputs, *outputs]:
        if np.asarray(value).dtype.kind == "i" and np.abs(np.asarray(value).astype(np.float64)).max(initial=0) > 2**31:
            raise Left("it has integers of more than 32 bits")


def along(node, data, steps):
    """Steps of an operand, each along the axis that it stands for."""
    axis = next((a.i for a in node.attribute if a.name == "axis"), 1)
    if steps.ndim == 1 and steps.size > 1 and node.op_type == "DequantizeLinear":
        return steps.reshape([-1 if d == axis % data.ndim else 1 for d in range(data.ndim)])
    if steps.ndim > 1:
        return np.repeat(steps, data.shape[axis] // steps.shape[axis], axis)
    return steps


def ways(model, inputs):
    """The models that a test is tried as: the way's name, and the model."""
    graph = model.graph
    kind = lambda i: Wrapped(model).inputs[i].type.tensor_type.elem_type
    node = graph.node[0]
    if len(graph.node) == 1 and re.match("QLinear|QuantizeLinear$|DequantizeLinear$", node.op_type):
        wrapped = Wrapped(model)
        for i, (value, data) in enumerate(zip(wrapped.inputs, inputs)):
            if i:
                wrapped.add(value.name, data)
            elif node.op_type == "QuantizeLinear":
                wrapped.as_real(value, data)
            else:
                zero = inputs[2] if len(inputs) > 2 and "zero" in wrapped.inputs[2].name else np.zeros_like(inputs[1], data.dtype)
                wrapped.as_int8(value.name, data, *(along(node, data, steps) for steps in [inputs[1].astype(np.float32), zero]))
        yield "int8", wrapped
        return
    floats = [i for i in range(len(inputs)) if kind(i) in FLOATS]
    first = (floats or [0])[0]
    for way, fed in [("inputs", range(len(inputs))), ("constants", [first]), ("folded", [])]:
        if (way == "constants" and len(inputs) == 1) or (way != "folded" and not inputs):
            continue
        # A tensor of no values can be a constant alone.
        if any(not np.asarray(inputs[i]).size for i in fed):
            continue
        wrapped = Wrapped(model)
        wrapped.network()
        for i, (value, data) in enumerate(zip(wrapped.inputs, inputs)):
            if i in fed:
                wrapped.as_input(value, np.asarray(data))
            else:
                wrapped.add(value.name, np.asarray(data))
        if way == "folded":
            for value in graph.output:
                wrapped.folded(value.name, value.type.tensor_type.elem_type)
        yield way, wrapped


def tried(vta, name, model, inputs, outputs, rtol, atol):
    """How a test ends: `passes`, `refused` or `wrong`; its way, and why."""
    operators = {node.op_type for node in model.graph.node}
    why = ""
    try:
        tensors(model, inputs, outputs)
        if operators & CHANCE:
            raise Left("its values are a matter of chance")
        with tempfile.TemporaryDirectory() as folder:
            for way, wrapped in ways(model, inputs):
                found, reason = run(vta, wrapped, Path(folder))
                if found is None:
                    why = why if way == "folded" and why else reason
                    continue
                for value, expected in zip(model.graph.output, outputs):
                    kind = value.type.tensor_type.elem_type
                    if value.name not in found:
                        return "wrong", way, f"output {value.name} is missing: {list(found)}"
                    wrong = fault(found[value.name], expected, kind, rtol, atol, STEPS if way == "int8" else None)
                    if wrong and of_peer(model, inputs, found, value):
                        return "peer", way, wrong
                    if wrong:
                        return "wrong", way, f"{value.name}: {wrong}"
                return "passes", way, ""
    except Left as left:
        return "left", "", str(left)
    except Exception as error:
        return "wrong", "", f"{type(error).__name__}: {error}"[:300]
    return "refused", "", why


def of_peer(model, inputs, found, value):
    """Whether onnxruntime computes of a test what the program does, not what the test has."""
    import onnxruntime

    try:
        run = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        given = {given.name: data for given, data in zip(run.get_inputs(), inputs)}
        [made] = run.run([value.name], given)
    except Exception:
        return False
    return not fault(found[value.name], made, value.type.tensor_type.elem_type, 1e-3, 1e-6, None)


def results(vta, jobs, only=""):
    cases = [case for case in of_cases() if re.search(only, case[0])]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        ends = pool.map(lambda case: tried(vta, *case), cases)
        return [(case[0], sorted({node.op_type for node in case[1].graph.node}), *end) for case, end in zip(cases, ends)]


def short(why):
    """A refusal without the names and sizes of its test."""
    why = " ".join(why.split())
    why = re.sub(r"^error: |^.*?node\.onnx: ", "", why).removeprefix("error: ")
    why = re.split(r"; node \S+ \(", why)[0]
    why = re.sub(r"ONNX nodes? .*?\((\w+)\): |ONNX: |^node \S+ \(\w+\): ", "", why)
    # What the host says is why no one does.
    why = why.split("nor does the host: ")[-1]
    why = re.sub(r"Inputs were .*|the host can't (load|compute) it: |in node \"node\": |operator (error|\"node\" failed): ", "", why)
    why = re.sub(r" for \[.*|\[[^]]*\]|/\S+", "..", why)
    return re.sub(r"\bv?\d+(\.\d+)*(?=[.\]])", "..", why).strip(" .;")[:120]


def page(ends):
    """The page of all tests."""
    counts = collections.Counter(end[2] for end in ends)
    fill = lambda text: textwrap.wrap(text, 110, break_long_words=False, break_on_hyphens=False)
    lines = ["# ONNX's tests", ""]
    lines += fill(f"`scripts/coverage --small` runs ONNX's own tests of its operators ({onnx.__version__}) and fails where this page, "
                  "which `--onnx-tests` writes, differs. It fails, too, where a value isn't what ONNX says.")
    lines += ["", "| tests | end |", "|---|---|"]
    lines += [f"| {counts['passes']} | pass: floats within ONNX's own bounds, whole numbers exactly, int8 of QDQ within a step |"]
    lines += [f"| {counts['peer']} | differ from ONNX's reference as onnxruntime does |"] if counts["peer"] else []
    lines += [f"| {counts['refused']} | are refused, for the reasons below |", f"| {counts['left']} | aren't tried: no input of the program holds their values |"]
    lines += ["", "## By operators", ""]
    lines += fill("Most operators are computed as the test stands. Some need constants for all inputs but the first (*constants*), or are "
                  "computed of constants alone (*folded*). *Expanded* are tests of functions, which are other operators together.")
    lines += ["", "| operator | pass | of | constants | folded |", "|---|---|---|---|---|"]
    groups = collections.defaultdict(list)
    for name, operators, end, way, _ in ends:
        groups["expanded" if "_expanded" in name else operators[0] if len(operators) == 1 else "several"].append((end, way))
    for operator, all_ in sorted(groups.items(), key=lambda entry: (entry[0] in ("expanded", "several"), entry[0])):
        passed = collections.Counter(way for end, way in all_ if end == "passes")
        lines.append(f"| {operator} | {passed.total()} | {len(all_)} | {passed['constants'] or ''} | {passed['folded'] or ''} |")
    for end, title in [("peer", "As onnxruntime"), ("refused", "Refused"), ("left", "Not tried")]:
        reasons = collections.defaultdict(list)
        for name, _, found, _, why in ends:
            if found == end:
                reasons[short(why) if end == "refused" else "" if end == "peer" else why].append(name.removeprefix("test_"))
        if reasons:
            lines += ["", f"## {title}", ""]
        for why, names in sorted(reasons.items(), key=lambda entry: (-len(entry[1]), entry[0])):
            lines += fill(f"- {why.replace('|', '/')}{' ' if why else ''}({len(names)}): {', '.join(names)}.")
    return "\n".join(lines) + "\n"


def failures(vta, update):
    """What is wrong, a line each; writes the page where it may."""
    ends = results(vta, os.cpu_count() or 1)
    counts = collections.Counter(end[2] for end in ends)
    print(f"ONNX's tests: {counts['passes']} pass, {counts['refused']} are refused, {counts['left']} aren't tried")
    failed = [f"{name} of ONNX ({WAYS.get(way, 'not run')}): {why}" for name, _, end, way, why in ends if end == "wrong"]
    made = page(ends)
    if update and not failed:
        PAGE.write_text(made)
    elif made != (PAGE.read_text() if PAGE.exists() else ""):
        failed.append(f"{PAGE} isn't what the tests give: scripts/coverage --small --onnx-tests writes it")
    return failed
