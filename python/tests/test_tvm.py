"""`pyvta.tvm` with a TVM that a C file stands for: a table of virtual functions, called as C++ calls them. With the real
one docs/c-original.md says the command."""

import json
import shutil
import subprocess
import sys

import pytest

import pyvta

CC = shutil.which("cc") or shutil.which("gcc")

# Symbols and order of TVM 0.17's CPUDeviceAPI, with others between.
SOURCE = """
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#define FN(name) _ZN3tvm7runtime12CPUDeviceAPI##name
typedef struct { int32_t kind, id; } Device;
typedef struct { uint8_t code, bits; uint16_t lanes; } Type;
static int other(void) { return 0; }
void *FN(14AllocDataSpaceE8DLDevicemm10DLDataType)(void *t, Device d, size_t n, size_t a, Type k) { return 0; }
void *FN(14AllocDataSpaceE8DLDeviceiPKl10DLDataType)(void *t) { return (void *)7; }
void FN(13FreeDataSpaceE8DLDevicePv)(void *t, Device d, void *p) { abort(); }
void FN(14CopyDataFromToEPKvmPvmm8DLDeviceS4_10DLDataTypeS3_)(void *t) { abort(); }
void *FN(14AllocWorkspaceE8DLDevicem10DLDataType)(void *t, Device d, size_t n, Type k) { return 0; }
void FN(13FreeWorkspaceE8DLDevicePv)(void *t, Device d, void *p) { abort(); }
void *table[40] = {
    other, other, FN(14AllocDataSpaceE8DLDevicemm10DLDataType), FN(14AllocDataSpaceE8DLDeviceiPKl10DLDataType),
    FN(13FreeDataSpaceE8DLDevicePv), other, FN(14AllocWorkspaceE8DLDevicem10DLDataType), FN(13FreeWorkspaceE8DLDevicePv),
    FN(14CopyDataFromToEPKvmPvmm8DLDeviceS4_10DLDataTypeS3_),
};
void **cpu = table;
void *cpu_api(void) { return &cpu; }
typedef void *(*Alloc)(void *, Device, size_t, size_t, Type);
typedef void *(*Shaped)(void *);
typedef void *(*Work)(void *, Device, size_t, Type);
typedef void (*Free)(void *, Device, void *);
typedef void (*Copy)(void *, const void *, size_t, void *, size_t, size_t, Device, Device, Type, void *);
/* What was copied through two buffers and a workspace; how many checks held before one didn't. */
int use(void **object, const char *text, char *back, size_t size) {
  void **t = *object;
  Device host = {1, 0}, device = {12, 0};
  Type kind = {0, 8, 1};
  Alloc alloc = (Alloc)t[2];
  Copy copy = (Copy)t[8];
  char *a = alloc(object, device, size + 8, 64, kind), *b = alloc(object, device, size, 64, kind);
  if (!a || !b) return 0;
  copy(object, text, 0, a, 8, size, host, device, kind, 0);
  copy(object, a, 8, b, 0, size, device, device, kind, 0);
  void *w = ((Work)t[6])(object, device, 5000, kind), *v = ((Work)t[6])(object, device, 5000, kind);
  if (!w || w == v) return 1;
  ((Free)t[7])(object, device, w);
  if (((Work)t[6])(object, device, 4500, kind) != w) return 2;
  copy(object, b, 0, w, 3, size, device, device, kind, 0);
  copy(object, w, 3, back, 0, size, device, host, kind, 0);
  ((Free)t[4])(object, device, a);
  ((Free)t[4])(object, device, b);
  if (((Shaped)t[3])(object) != (void *)7) return 3;
  /* It is free: this fails. */
  ((Free)t[4])(object, device, a);
  return 4;
}
"""

TVM = """
import ctypes, types
cpu = ctypes.CDLL(LIBRARY)
cpu.cpu_api.restype = ctypes.c_void_p
functions = {"device_api.cpu": lambda: ctypes.c_void_p(cpu.cpu_api())}
get_global_func = functions.get
def register_func(name, function, override=False):
    functions[name] = function
class NDArray:
    def numpy(self, of=1):
        return of
nd = types.SimpleNamespace(NDArray=NDArray)
"""

USE = """
import ctypes, json, tvm
import pyvta.tvm
from vta.libinfo import find_libvta
back = ctypes.create_string_buffer(64)
tvm.cpu.use.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_char_p, ctypes.c_size_t]
api = tvm.get_global_func("device_api.ext_dev")()
held = tvm.cpu.use(api, b"over the device", back, 15)
said = []
for ask in (tvm.NDArray().numpy, tvm.get_global_func("vta.simulator.profiler_status"), pyvta.tvm.check):
    try:
        ask()
    except Exception as error:
        said.append([type(error).__name__, str(error)])
stats = json.loads(tvm.get_global_func("vta.simulator.profiler_status")())
try:
    tvm.get_global_func("vta.simulator.profiler_debug_mode")(1)
except pyvta.RunError as error:
    said.append(str(error))
print(json.dumps([held, back.value.decode(), said, stats, find_libvta("libvta_fsim"), tvm.NDArray().numpy(of=3)]))
"""


@pytest.mark.skipif(CC is None or sys.platform != "linux", reason="wants a C compiler on Linux")
def test_tvm_finds_the_device_by_an_import(tmp_path):
    (tmp_path / "cpu.c").write_text(SOURCE)
    library = tmp_path / "libcpu.so"
    subprocess.run([CC, "-shared", "-fPIC", "-o", library, tmp_path / "cpu.c"], check=True)
    (tmp_path / "tvm.py").write_text(f"LIBRARY = {str(library)!r}\n{TVM}")
    (tmp_path / "vta").mkdir()
    (tmp_path / "vta/__init__.py").write_text("")
    (tmp_path / "vta/libinfo.py").write_text("def find_libvta(name, optional=False):\n    raise RuntimeError(name)\n")
    done = subprocess.run([sys.executable, "-c", USE], cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    held, back, said, stats, found, numpy = json.loads(done.stdout)
    assert (held, back, numpy) == (4, "over the device", 3)
    # It is raised once, by whoever asks first.
    assert [kind for kind, _ in said[:-1]] == ["RunError"] and "VTABufferFree" in said[0][1]
    assert "debug mode 1" in said[-1]
    assert stats["gemm_counter"] == 0 and found == [pyvta._pyvta.__file__]
    assert "libvta:" not in done.stderr
