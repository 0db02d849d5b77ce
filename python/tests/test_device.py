"""Programs by hand: numpy in, numpy out, on every device that is always there."""

import _thread
import threading

import numpy as np
import pytest

import pyvta
from pyvta import isa
from pyvta.isa import Alu, Finish, Gemm, Load, Store, Uop

DEVICES = ["sim", "oracle", "cycle"]
# Of the last one, elements are larger than pages.
CONFIGS = [
    {},
    {"LOG_BLOCK": 5},
    {"LOG_BATCH": 2, "LOG_BLOCK": 3, "LOG_WGT_BUFF_SIZE": 16},
    {"LOG_BATCH": 6, "LOG_BLOCK": 6, "LOG_ACC_BUFF_SIZE": 20, "LOG_INP_BUFF_SIZE": 18},
]


def product(x, weights, name="sim", config=None, **options):
    """x @ weights.T of one tile each, in the low 8 bits, and the report."""
    with pyvta.Device(name, config=config, **options) as vta:
        a, w, c = vta.alloc(x.nbytes), vta.alloc(weights.nbytes), vta.alloc(x.nbytes)
        vta.write(a, x)
        vta.write(w, weights)
        step = {"uop_end": 1, "iter_out": 1, "iter_in": 1}
        program = [
            Load("uop", y_size=1, x_size=1, x_stride=1),
            Gemm(reset=True, **step),
            Load("wgt", dram_base=w.element("wgt"), y_size=1, x_size=1, x_stride=1),
            Load("inp", dram_base=a.element("inp"), y_size=1, x_size=1, x_stride=1, push_next=True),
            Gemm(**step, pop_prev=True, push_next=True),
            Store(dram_base=c.element("out"), y_size=1, x_size=1, x_stride=1, pop_prev=True, push_prev=True),
            Finish(pop_next=True),
        ]
        assert isa.check(program, vta.config) == []
        report = vta.run(program, uops=[Uop()])
        return vta.read(c, x.shape, np.int8), report


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize("keys", CONFIGS, ids=str)
def test_a_gemm_by_hand_is_numpys(name, keys):
    config, rng = isa.Config(keys), np.random.default_rng(1)
    x = rng.integers(-128, 128, (config.batch, config.block), np.int8)
    weights = rng.integers(-128, 128, (config.block, config.block), np.int8)
    found, report = product(x, weights, name, config)
    np.testing.assert_array_equal(found, (x.astype(np.int32) @ weights.T.astype(np.int32)).astype(np.int8))
    assert (report.insns, report.gemm_steps, report.reset_steps, report.alu_steps) == (7, 1, 1, 0)
    assert report.bytes["wgt"] == weights.nbytes and report.bytes["uop"] == 4
    assert set(report.leftover_tokens.values()) == {0} and report.to_dict()["cycles"] == report.cycles
    if name != "cycle":
        assert report.cycles is None
        with pytest.raises(pyvta.UsageError, match="counts no cycles"):
            report.insn_cycles()
        return
    cycles = report.insn_cycles()
    assert len(cycles) == 7 and cycles[-1][1] is None
    assert all(start <= done <= report.cycles for start, done in cycles[:-1])


WIDTHS = [(inp, wgt, out) for inp in (3, 4, 5) for wgt in (3, 4, 5) for out in (3, 4, 5)]


@pytest.mark.parametrize("name", DEVICES)
def test_numbers_of_any_width_are_numpys(name):
    rng = np.random.default_rng(4)
    numbers = {3: np.int8, 4: np.int16, 5: np.int32}

    def some(log_width, shape):
        bounds = np.iinfo(numbers[log_width])
        return rng.integers(bounds.min, bounds.max, shape, numbers[log_width], endpoint=True)

    for inp, wgt, out in WIDTHS:
        keys = {"LOG_INP_WIDTH": inp, "LOG_WGT_WIDTH": wgt, "LOG_OUT_WIDTH": out, "EXTENSIONS": ["ACC8", "SATURATE"]}
        config = isa.Config(keys)
        x, weights, residual = some(inp, (3, 16)), some(wgt, (16, 16)), some(out, (3, 16))
        with pyvta.Device(name, config=config) as vta:
            a, w, r, c = (vta.alloc(size) for size in (x.nbytes, weights.nbytes, residual.nbytes, 2 * residual.nbytes))
            for buffer, array in ((a, x), (w, weights), (r, residual)):
                vta.write(buffer, array)
            rows = "y_size=1 x_size=3 x_stride=3"
            program = f"""
                load.uop y_size=1 x_size=1 x_stride=1
                load.acc8 dram_base={r.element("acc8")} {rows}
                load.wgt dram_base={w.element("wgt")} y_size=1 x_size=1 x_stride=1
                load.inp dram_base={a.element("inp")} {rows} push_next
                gemm uop_end=1 iter_out=1 iter_in=3 dst_factor_in=1 src_factor_in=1 pop_prev push_next
                store dram_base={c.element("out")} {rows}
                store saturate dram_base={c.element("out") + 3} {rows} pop_prev push_prev
                finish pop_next
            """
            report = vta.run(program, uops=[Uop()])
            found, saturated = vta.read(c, (2, 3, 16), numbers[out])
        assert report.bytes["inp"] == x.nbytes and report.bytes["out"] == 2 * residual.nbytes
        # What an int32 doesn't hold is lost, and so is what an output doesn't.
        sums = residual.astype(np.uint32) + x.astype(np.uint32) @ weights.T.astype(np.uint32)
        np.testing.assert_array_equal(found, sums.astype(numbers[out]), f"{inp} {wgt} {out}")
        bounds = np.iinfo(numbers[out])
        expected = np.clip(sums.astype(np.int32), bounds.min, bounds.max)
        np.testing.assert_array_equal(saturated, expected, f"{inp} {wgt} {out}, saturated")


def test_a_slower_board_takes_its_own_cycles():
    x, w = np.ones((1, 16), np.int8), np.ones((16, 16), np.int8)
    cycles = {name: product(x, w, "cycle", timing=name)[1].cycles for name in ("pynq", "de10")}
    assert all(cycles.values())
    assert product(x, w, "cycle", board="pynq")[1].cycles == cycles["pynq"]


@pytest.mark.parametrize("name", DEVICES)
def test_an_alu_by_hand_is_numpys(name):
    values = np.random.default_rng(2).integers(-(2**31), 2**31, (8, 16), np.int64).astype(np.int32)
    with pyvta.Device(name) as vta:
        source, target = vta.alloc(values.nbytes), vta.alloc(values.size)
        vta.write(source, values)
        program = f"""
            load.uop y_size=1 x_size=1 x_stride=1
            load.acc dram_base={source.element("acc")} y_size=1 x_size=8 x_stride=8
            alu.shr imm=20 uop_end=1 iter_out=1 iter_in=8 dst_factor_in=1 src_factor_in=1
            alu.max imm=-5 uop_end=1 iter_out=1 iter_in=8 dst_factor_in=1 src_factor_in=1 push_next
            store dram_base={target.element("out")} y_size=1 x_size=8 x_stride=8 pop_prev push_prev
            finish pop_next
        """
        vta.run(isa.encode(program), uops=isa.encode_uops([Uop()]))
        expected = np.maximum(values >> 20, -5).astype(np.int8)
        np.testing.assert_array_equal(vta.read(target, (8, 16), "int8"), expected)


def test_micro_ops_of_ones_own_buffer_count_from_address_0():
    with pyvta.Device() as vta:
        uops, target = vta.alloc(8), vta.alloc(32)
        vta.write(uops, isa.encode_uops([Uop(), Uop(dst=1)]))
        load = Load("uop", dram_base=uops.element("uop", 4), y_size=1, x_size=1, x_stride=1)
        step = {"uop_end": 1, "iter_out": 1, "iter_in": 1}
        vta.run(
            [
                load,
                Alu("add", imm=9, **step, push_next=True),
                Store(dram_base=target.element("out"), y_size=1, x_size=2, x_stride=2, pop_prev=True, push_prev=True),
                Finish(pop_next=True),
            ]
        )
        np.testing.assert_array_equal(vta.read(target, (2, 16), np.int8), np.repeat([[0], [9]], 16, 1))


def test_any_array_is_written_in_c_order():
    with pyvta.Device() as vta:
        buffer = vta.alloc(96)
        assert buffer.nbytes == 96 and not vta.read(buffer, 96, np.uint8).any()
        x = np.arange(-6, 6, dtype=np.int32).reshape(3, 4)
        for array in (x, x[::-1], x.T, np.asfortranarray(x), x[:, 1:3], np.int32(7), memoryview(x)):
            vta.write(buffer, array)
            found = vta.read(buffer, np.shape(array), np.int32)
            np.testing.assert_array_equal(found, array)
        for given in (b"\x01\x02", bytearray(b"\x01\x02"), np.array([1, 2], np.uint8)):
            vta.write(buffer, given, offset=np.int64(10))
            np.testing.assert_array_equal(vta.read(buffer, np.array([2, 1]), ">i1", 10), [[1], [2]])
        vta.write(buffer, np.zeros(0, np.int8), 96)
        assert vta.read(buffer, (3, 0), np.int8, 96).shape == (3, 0)
        found = vta.read(buffer, (2,), np.int32)
        found[:] = 1  # It is the caller's own.


@pytest.mark.parametrize("dtype", ["int64", "float32", "float64", "int16", ">i4", "bool", "complex64", "O", "U1", "M8[s]"])
def test_types_that_no_device_has_are_refused(dtype):
    with pyvta.Device() as vta:
        buffer = vta.alloc(64)
        with pytest.raises(pyvta.InputError, match="is no type of a device's elements"):
            vta.write(buffer, np.zeros(2, dtype))
        assert not vta.read(buffer, 64, np.int8).any()


@pytest.mark.parametrize("value", [[1, 2, 3], (1,), 7, 1.5, "abc", None])
def test_what_has_no_type_of_elements_is_refused(value):
    with pyvta.Device() as vta:
        with pytest.raises(TypeError, match="has no type of elements: write an array"):
            vta.write(vta.alloc(64), value)


def test_a_buffer_that_nobody_has_is_freed():
    with pyvta.Device() as vta:
        first = vta.alloc(1).address
        for _ in range(200):
            assert vta.alloc(3 << 20).address - first <= 4096
        kept = [vta.alloc(3 << 20) for _ in range(5)]
        assert len({buffer.address for buffer in kept}) == 5


def test_micro_ops_may_be_tuples():
    program, rng = "load.uop y_size=1 x_size=3 x_stride=3\nfinish", np.random.default_rng(0)
    with pyvta.Device() as vta:
        assert vta.run(program, uops=[(1, np.int64(2), 3), (4,), Uop()]).insns == 2
        fields = [tuple(int(x) for x in rng.integers(0, 1024, 3)) for _ in range(20)]
        np.testing.assert_array_equal(isa.encode_uops(fields), isa.encode_uops([Uop(*x) for x in fields]))
        for uops in ([(1, 2, 3, 4)], [3], [None], ["abc"]):
            with pytest.raises(TypeError, match="micro-op 0: a Uop or a tuple of dst, src and wgt, not "):
                vta.run(program, uops=uops)
        for use in (lambda: vta.run(None), lambda: vta.run(program, uops=3)):
            with pytest.raises(TypeError, match="(instructions|micro-ops) are a list or an array, not "):
                use()


def test_misuse_is_told():
    with pyvta.Device() as vta, pyvta.Device("oracle") as other:
        a = vta.alloc(64)
        for use in (lambda: vta.write(a, np.zeros(65, np.int8)), lambda: vta.read(a, (5, 4), np.int32)):
            with pytest.raises(pyvta.InputError, match="bytes at offset 0 of a buffer of 64"):
                use()
        with pytest.raises(pyvta.InputError, match="18446744073709551615 bytes"):
            vta.read(a, (2**40, 2**40), np.int8)
        with pytest.raises(pyvta.InputError, match="`offset` is -1"):
            vta.write(a, np.zeros(1, np.int8), -1)
        with pytest.raises(pyvta.InputError, match="`size_bytes` is -1"):
            vta.alloc(-1)
        with pytest.raises(pyvta.InputError, match="`shape` is -1"):
            vta.read(a, (-1,), np.int8)
        with pytest.raises(pyvta.InputError, match=f"`size_bytes` is {10**30}, but it must be at most"):
            vta.alloc(10**30)
        with pytest.raises(TypeError, match="`size_bytes` is a whole number, not float"):
            vta.alloc(1.5)
        for dtype, error in [("O", pyvta.InputError), ("V0", pyvta.InputError), ("no", TypeError)]:
            with pytest.raises(error):
                vta.read(a, 1, dtype)
        with pytest.raises(pyvta.InputError, match="doesn't begin an element of wgt, which has 256"):
            a.element("wgt", 16)
        with pytest.raises(pyvta.UsageError, match="no memory type 'weights'"):
            a.element("weights")
        with pytest.raises(pyvta.UsageError, match="of another device"):
            other.write(a, np.zeros(1, np.int8))
        with pytest.raises(pyvta.DeviceError):
            vta.alloc(1 << 33)
        vta.free(a)
        again = vta.alloc(64)
        for use in (lambda: vta.free(a), lambda: vta.write(a, np.zeros(1, np.int8)), lambda: vta.read(a, 1, np.int8)):
            with pytest.raises(pyvta.UsageError, match="is freed"):
                use()
        vta.free(again)
    with pytest.raises(pyvta.UsageError, match="device sim is closed"):
        vta.alloc(1)
    vta.close()
    with pytest.raises(pyvta.UsageError, match="no device 'simm'"):
        pyvta.Device("simm")
    with pytest.raises(TypeError, match="no option 'allow_host'"):
        pyvta.Device("sim", allow_host=True)
    with pytest.raises(pyvta.UsageError, match="`threads`"):
        pyvta.Device("sim", threads=0)


@pytest.mark.parametrize("name", DEVICES)
@pytest.mark.parametrize(
    "program, text",
    [
        ("load.inp pop_next\nfinish pop_next", "deadlock"),
        ("load.inp dram_base=1000 y_size=1 x_size=1\nfinish", "instruction 0"),
        ("load.inp sram_base=2047 y_size=1 x_size=2\nfinish", "sram_base"),
        ("gemm uop_end=8191 iter_out=16383 iter_in=16383\nfinish", "budget of 17179869184 GEMM and ALU steps$"),
        ("gemm", "FINISH"),
        ([], "FINISH"),
    ],
)
def test_programs_that_cannot_run_are_refused_and_the_device_goes_on(name, program, text):
    x, weights = np.ones((1, 16), np.int8), np.ones((16, 16), np.int8)
    with pyvta.Device(name) as vta:
        for _ in range(3):
            with pytest.raises(pyvta.RunError, match=text):
                vta.run(program)
        assert vta.run("finish").insns == 1
    assert product(x, weights, name)[0].tolist() == [[16] * 16]


def test_runs_leave_nothing_in_the_devices_memory():
    with pyvta.Device() as vta:
        before = vta.alloc(1)
        for _ in range(50):
            vta.run("finish", uops=np.zeros(1000, np.uint32))
        assert vta.alloc(1).address - before.address <= 3 * 4096


def test_threads_share_a_device():
    errors = []
    with pyvta.Device() as vta:

        def work(seed):
            try:
                for i in range(40):
                    buffer, values = vta.alloc(400), np.full(100, seed * 1000 + i, np.int32)
                    vta.write(buffer, values)
                    vta.run("finish")
                    np.testing.assert_array_equal(vta.read(buffer, 100, np.int32), values)
                    vta.free(buffer)
            except Exception as error:
                errors.append(error)

        threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert errors == []


def test_ctrl_c_gives_python_back_and_the_device_goes_on():
    """What the work waits for comes after Ctrl-C, so that nothing else can have ended the wait."""
    with pyvta.Device() as vta:
        line = pyvta.Timeline()
        promise = line.promise()
        work = vta.run_async("finish", waits=[promise])
        timer = threading.Timer(0.1, _thread.interrupt_main)
        with pytest.raises(KeyboardInterrupt):
            timer.start()
            work.result()
        timer.join()
        assert not work.done and line.value == 0
        promise.keep()
        assert work.result().insns == 1 and vta.run("finish").insns == 1
