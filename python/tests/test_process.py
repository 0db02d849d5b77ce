"""What a session does to its process: threads, signals, memory."""

import ctypes
import multiprocessing
import operator
import os
import signal
import subprocess
import sys
import threading
from ast import literal_eval
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import pyvta
from conftest import pictures

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def test_threads_share_a_session(demo):
    inputs = [pictures(1 + seed % 3, seed) for seed in range(24)]
    expected = [demo.run(None, {"input": x})[0] for x in inputs]
    with ThreadPoolExecutor(8) as pool:
        for _ in range(4):
            found = pool.map(lambda x: demo.run(None, {"input": x})[0], inputs)
            for x, y in zip(found, expected, strict=True):
                np.testing.assert_array_equal(x, y)


ENDLESS = """
import _thread, os, sys, threading, time, numpy as np, pyvta

def run():
    x = np.zeros((1000, 3, 32, 32), np.float32)
    return lambda session=pyvta.InferenceSession("demo", "oracle"): session.run(None, {"input": x})

def device():
    device = pyvta.Device("oracle")
    loops = "gemm uop_end=1 iter_out=16000 iter_in=16000\\n" * 60
    program = "load.uop y_size=1 x_size=1 x_stride=1\\n" + loops + "finish"
    return lambda: device.run(program, uops=[(0, 0, 0)])

work, begun = {"run": run, "device": device}[sys.argv[1]](), threading.Event()

def in_time():
    begun.set()
    work()

if sys.argv[2] == "beside":
    threading.Thread(target=in_time, daemon=True).start()
    begun.wait()
    for _ in range(200):
        time.sleep(0.002)
    print("Python goes on", flush=True)
else:
    threading.Timer(0.3, _thread.interrupt_main).start()
    try:
        in_time()
        print("it ended", flush=True)
    except KeyboardInterrupt:
        print("Python goes on", flush=True)
os._exit(0)
"""


@pytest.mark.parametrize("work, how", [("run", "beside"), ("device", "beside"), ("device", "interrupted")])
def test_python_goes_on_while_rust_computes_for_an_hour(work, how):
    """It would wait for the work if that held Python's lock, or heard nothing of Ctrl-C."""
    done = subprocess.run([sys.executable, "-c", ENDLESS, work, how], capture_output=True, text=True, timeout=300)
    assert (done.stdout, done.stderr) == ("Python goes on\n", "")


def test_a_worker_process_gets_a_session(tiny):
    session, x = pyvta.InferenceSession(tiny, threads=1), pictures(3, shape=(3, 8, 8))
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        [found] = pool.apply(operator.methodcaller("run", None, {"x": x}), (session,))
    np.testing.assert_array_equal(found, session.run(None, {"x": x})[0])


FORK = """
import multiprocessing, sys, threading, numpy as np, pyvta
x = np.zeros((2, 3, 32, 32), np.float32)
what = sys.argv[1]
held = {}
if what in ("opened", "used"):
    held["session"] = pyvta.InferenceSession("demo", threads=2)
if what == "used":
    held["session"].run(None, {"input": x})
if what == "compiled":
    pyvta.compile("demo")
if what == "device":
    held["device"] = pyvta.Device()
    held["buffer"] = held["device"].alloc(64)
if what == "line":
    held["line"] = pyvta.Timeline()
    held["promise"] = held["line"].promise()
    pyvta.models()

def uses():
    yield lambda: pyvta.InferenceSession("demo", threads=1).run(None, {"input": x})
    if "session" in held:
        yield lambda: held["session"].run(None, {"input": x})
    if "device" in held:
        yield lambda: held["device"].run("finish")
        yield lambda: held["device"].read(held["buffer"], 1, "int8")
    if "line" in held:
        yield lambda: held["line"].wait(1)

def work(results):
    for use in uses():
        try:
            use()
            results.put("ran")
        except pyvta.UsageError as error:
            results.put(str(error))
    held.clear()
    results.put("end")

context = multiprocessing.get_context("fork")
results = context.SimpleQueue()
child = context.Process(target=work, args=(results,))
child.start()
child.join(60)
if child.exitcode is None:
    child.kill()
    sys.exit("the child hangs")
told = []
while not told or told[-1] != "end":
    told.append(results.get())
print(child.exitcode, told)
for use in (lambda: held["device"].run("finish"), lambda: held["session"].run(None, {"input": x})):
    try:
        use()
    except KeyError:
        pass
"""


@linux
@pytest.mark.parametrize("what, uses", [("none", 1), ("opened", 2), ("used", 2), ("compiled", 1), ("device", 3), ("line", 2)])
def test_a_forked_child_is_told_and_ends(what, uses):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", FORK, what], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    code, told = done.stdout.split(" ", 1)
    *told, end = literal_eval(told)
    assert (code, end, len(told)) == ("0", "end", uses)
    for text in told:
        assert text == "ran" if what == "none" else "this process was forked" in text and "spawn" in text


@pytest.mark.parametrize("work", ["run", "quantize"])
def test_ctrl_c_stops_long_work(demo, float_model, work):
    x = np.zeros((20_000 if work == "run" else 3000, 3, 32, 32), np.float32)
    seen, begun = [], threading.Event()

    def progress(done, all):
        seen.append((done, all))
        begun.set()

    def interrupt():
        begun.wait()
        os.kill(os.getpid(), signal.SIGINT)

    works = {
        "run": lambda: demo.run(None, {"input": x}, progress=progress),
        "quantize": lambda: pyvta.quantize(float_model, x, progress=progress),
    }
    thread = threading.Thread(target=interrupt)
    with pytest.raises(KeyboardInterrupt):
        thread.start()
        works[work]()
    thread.join()
    done, all = seen[-1]
    assert done < all
    assert demo.run(None, {"input": x[:2]})[0].shape == (2, 10)


def test_progress_of_a_run_is_told_and_may_stop_it(demo):
    seen, x = [], pictures(2000)
    demo.run(None, {"input": x}, progress=lambda done, all: seen.append((done, all)))
    assert seen == sorted(seen) and seen[-1] == (2000, 2000)

    def stop(done, all):
        raise RuntimeError("enough")

    with pytest.raises(RuntimeError, match="enough"):
        demo.run(None, {"input": x}, progress=stop)


def resident():
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")


@linux
def test_ten_thousand_calls_leave_no_memory_behind(tiny):
    session, x = pyvta.InferenceSession(tiny), pictures(1, shape=(3, 8, 8))
    strided = np.asfortranarray(pictures(2, shape=(3, 8, 8)))

    def call():
        session.run(None, {"x": x})
        session.run_quantized(["y"], {"x": strided})
        session.get_inputs()[0].shape
        with pytest.raises(pyvta.InputError):
            session.run(None, {"z": x})

    # PR_SET_THP_DISABLE: the kernel would put pages together whenever it has time, two megabytes at once.
    ctypes.CDLL(None).prctl(41, 1, 0, 0, 0)
    for _ in range(500):
        call()
    before = resident()
    for _ in range(5000):
        call()
    # 400 bytes a call would show.
    assert resident() - before < 4 << 20


@linux
def test_sessions_leave_no_memory_behind(tiny):
    x = pictures(1, shape=(3, 8, 8))

    def use():
        session = pyvta.InferenceSession(tiny, device="cycle")
        session.run(None, {"x": x})
        return session.report.cycles

    for _ in range(20):
        use()
    before = resident()
    for _ in range(100):
        use()
    assert resident() - before < 16 << 20


BORROWED = """
import resource, numpy as np, pyvta
session = pyvta.InferenceSession("demo")
x = np.ones((6000, 3, 32, 32), np.float32)
session.run(None, {"input": x[:10]})
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
before = peak()
session.run(None, {"input": x})
print(peak() - before, x.nbytes)
"""


@linux
def test_a_contiguous_array_is_not_copied():
    done = subprocess.run([sys.executable, "-c", BORROWED], check=True, capture_output=True, text=True)
    more, size = map(int, done.stdout.split())
    assert more < size / 4, f"{more} bytes more for an array of {size}"
