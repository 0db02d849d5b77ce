# Runs a model with onnxruntime, default optimisation, one thread: prints the version, then for each
# line that it reads the milliseconds of one run.
import sys
import time

try:
    import numpy
    import onnxruntime
except ImportError as error:
    sys.exit(f"{error}: install onnxruntime and numpy")

options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
options.inter_op_num_threads = 1
options.log_severity_level = 3
session = onnxruntime.InferenceSession(
    sys.argv[1], options, providers=["CPUExecutionProvider"]
)
inputs = session.get_inputs()[0]
shape = [d if isinstance(d, int) else 1 for d in inputs.shape]
image = numpy.random.default_rng(0).standard_normal(shape).astype(numpy.float32)
for _ in range(3):
    session.run(None, {inputs.name: image})
print(onnxruntime.__version__, flush=True)
for _ in sys.stdin:
    started = time.perf_counter()
    session.run(None, {inputs.name: image})
    print(1e3 * (time.perf_counter() - started), flush=True)
