"""Queued work, timelines and promises: order by signals, and no wait that can't end."""

import threading

import numpy as np
import pytest

import pyvta
from pyvta import isa
from pyvta.isa import Alu, Finish, Load, Store, Uop

DEVICES = ["sim", "oracle", "cycle"]


def increment(source, target, by):
    """A program that adds to 8 tiles of int32 and stores their low bytes."""
    step = {"uop_end": 1, "iter_out": 1, "iter_in": 8, "dst_factor_in": 1, "src_factor_in": 1}
    return [
        Load("uop", y_size=1, x_size=1, x_stride=1),
        Load("acc", dram_base=source.element("acc"), y_size=1, x_size=8, x_stride=8),
        Alu("add", imm=by, **step, push_next=True),
        Store(dram_base=target.element("out"), y_size=1, x_size=8, x_stride=8, pop_prev=True, push_prev=True),
        Finish(pop_next=True),
    ]


@pytest.mark.parametrize("names", [("sim", "oracle"), ("cycle", "sim"), ("oracle", "oracle")], ids="-".join)
def test_two_devices_feed_each_other(names):
    """Each round adds 3 on the first device and 5 on the second, which only signals order."""
    rounds, x = 12, np.random.default_rng(0).integers(-100, 100, (8, 16)).astype(np.int8)
    with pyvta.Device(names[0]) as a, pyvta.Device(names[1]) as b:
        lines = [pyvta.Timeline("first"), pyvta.Timeline("second")]
        ends = [(d, d.alloc(x.size * 4), d.alloc(x.size)) for d in (a, b)]
        start = lines[1].promise()
        given = None
        for turn in range(2 * rounds):
            device, source, target = ends[turn % 2]
            mine, other = lines[turn % 2], lines[1 - turn % 2]
            due = [(other, turn // 2 + 1)]
            wide = x.astype(np.int32) if given is None else given
            # Bytes of the other device are widened by the host: int32 in steps of four bytes.
            written = device.write_async(source, wide, waits=due) if given is None else None
            if written is None:
                data = np.ascontiguousarray(given.result(60).astype(np.int32))
                written = device.write_async(source, data, waits=due)
            else:
                start.keep()
            line = pyvta.Timeline("inner")
            written.result(60)
            ran = device.run_async(increment(source, target, 3 if turn % 2 == 0 else 5), [Uop()], signals=[(line, 1)])
            given = device.read_async(target, x.shape, np.int8, waits=[(line, 1)], signals=[mine.promise()])
            assert ran.result(60).insns == 5
        found = given.result(60)
    np.testing.assert_array_equal(found, (x.astype(np.int64) + 8 * rounds).astype(np.int8))
    assert [line.value for line in lines] == [rounds, rounds + 1]


@pytest.mark.parametrize("name", DEVICES)
def test_a_chain_over_two_devices_needs_no_wait_of_the_host(name):
    """Bytes go from device to device and back by promises made ahead, in the wrong order of calls."""
    x = np.random.default_rng(1).integers(0, 256, 4096).astype(np.uint8)
    with pyvta.Device(name) as a, pyvta.Device("sim") as b:
        source, middle, target = a.alloc(x.size), b.alloc(x.size), a.alloc(x.size)
        line = pyvta.Timeline("chain")
        go, there = line.promise(1), line.promise(2)
        a.write(source, x)
        first = a.read_async(source, x.size, np.uint8, waits=[go])
        forth = b.write_async(middle, first, signals=[there])
        back = b.read_async(middle, x.size, np.uint8, waits=[(line, 2)])
        home = a.write_async(target, back)
        assert not (first.done or forth.done or home.done) and line.value == 0 and line.promised == 2
        go.keep()
        assert home.result(60) is None and home.done and line.value == 2
        np.testing.assert_array_equal(a.read(target, x.size, np.uint8), x)
        np.testing.assert_array_equal(back.result(), x)


def test_the_host_promises_signals_and_waits_with_a_deadline():
    line = pyvta.Timeline("frames")
    assert (line.name, line.value, line.promised, repr(line)) == ("frames", 0, 0, "<Timeline frames: at 0, promised 0>")
    first, second = line.promise(), line.promise(5)
    assert (first.value, second.value, second.timeline.name) == (1, 5, "frames")
    with pytest.raises(pyvta.WaitTimeoutError, match="frames is at 0") as raised:
        line.wait(5, timeout=0.01)
    assert isinstance(raised.value, TimeoutError) and isinstance(raised.value, pyvta.VtaError)
    second.keep()
    assert line.value == 0
    timer = threading.Timer(0.05, first.keep)
    timer.start()
    line.wait(3)
    timer.join()
    assert line.value == 5
    line.signal()
    line.signal(np.int64(9))
    assert line.value == 9
    for wrong in (lambda: line.promise(9), lambda: line.signal(3)):
        with pytest.raises(pyvta.WaitError, match="can't be promised after 9"):
            wrong()
    with pytest.raises(pyvta.UsageError, match="was kept, failed or handed to work before"):
        first.keep()
    for timeout in (-1, float("nan"), float("inf")):
        with pytest.raises(pyvta.UsageError, match="`timeout` is seconds"):
            line.wait(9, timeout)


def test_a_wait_that_cannot_be_satisfied_is_an_error():
    line = pyvta.Timeline("never")
    with pyvta.Device() as vta:
        buffer = vta.alloc(4)
        for wait in (lambda: line.wait(1), lambda: vta.run_async("finish", waits=[(line, 1)])):
            with pytest.raises(pyvta.WaitError, match="nothing outstanding signals 1"):
                wait()
        with pytest.raises(pyvta.WaitError, match="which waits for that work"):
            vta.run_async("finish", waits=[promise := line.promise()], signals=[promise])
        other = pyvta.Timeline("dropped")
        dropped = other.promise()
        waiting = [vta.run_async("finish", waits=[(other, 1)]), vta.read_async(buffer, 4, np.int8, waits=[dropped])]
        del dropped
        for work in waiting:
            with pytest.raises(pyvta.WaitError, match="was dropped"):
                work.result(60)
        failed = pyvta.Timeline("failed")
        promise = failed.promise()
        work = vta.write_async(buffer, np.ones(4, np.int8), waits=[promise])
        promise.fail("no camera")
        with pytest.raises(pyvta.WaitError, match="no camera"):
            work.result(60)
        assert not vta.read(buffer, 4, np.int8).any()


def test_work_that_fails_fails_what_waits_for_it_and_later_work_goes_on():
    with pyvta.Device() as vta, pyvta.Device("oracle") as other:
        line, start = pyvta.Timeline(), pyvta.Timeline()
        go = start.promise()
        stream = "load.inp dram_base=1000000 y_size=1 x_size=1\nfinish"
        bad = vta.run_async(stream, waits=[go], signals=[(line, 1)])
        buffer = other.alloc(4)
        behind = other.write_async(buffer, b"abcd", waits=[(line, 1)])
        go.keep()
        with pytest.raises(pyvta.RunError, match="outside every allocation"):
            bad.result(60)
        assert bad.done
        with pytest.raises(pyvta.WaitError, match="outside every allocation"):
            line.wait(1)
        with pytest.raises(pyvta.WaitError, match="outside every allocation"):
            behind.result(60)
        assert not other.read(buffer, 4, np.int8).any()
        assert vta.run_async("finish").result(60).insns == 1


def test_buffers_live_as_long_as_queued_work_needs_them():
    x = np.random.default_rng(2).integers(-100, 100, (8, 16)).astype(np.int32)
    with pyvta.Device() as vta:
        source, target = vta.alloc(x.nbytes), vta.alloc(x.size)
        address = source.address
        vta.write(source, x)
        line = pyvta.Timeline()
        go = line.promise()
        ran = vta.run_async(increment(source, target, 1), [Uop()], waits=[go])
        vta.free(source)
        del source
        assert vta.alloc(x.nbytes).address != address
        go.keep()
        assert ran.result(60).alu_steps == 8
        np.testing.assert_array_equal(vta.read(target, (8, 16), np.int8), (x + 1).astype(np.int8))
        found = {vta.alloc(x.nbytes).address for _ in range(4)}
        assert address in found


def test_a_closed_device_ends_work_that_waits_for_the_host():
    line = pyvta.Timeline()
    promise = line.promise()
    with pyvta.Device() as vta:
        work = vta.run_async("finish", waits=[promise])
    with pytest.raises(pyvta.WaitError, match="dropped while its work waited for the host"):
        work.result(60)
    with pytest.raises(pyvta.UsageError, match="is closed"):
        vta.run_async("finish")


def test_a_full_queue_that_only_the_host_can_empty_is_an_error():
    line = pyvta.Timeline()
    promise = line.promise()
    with pyvta.Device() as vta:
        with pytest.raises(pyvta.WaitError, match="pieces of work wait for a promise that the host holds"):
            for _ in range(1000):
                vta.run_async("finish", waits=[promise])
        promise.keep()
        assert vta.run_async("finish").result(60).insns == 1


@pytest.mark.parametrize("given", [3, [3], [("line", 1)], [(1, 2, 3)]])
def test_what_is_no_order_is_told(given):
    with pyvta.Device() as vta:
        for name in ("waits", "signals"):
            with pytest.raises(TypeError, match=f"`{name}` is a list of promises"):
                vta.run_async("finish", **{name: given})
        with pytest.raises(pyvta.UsageError, match="only what a read gives"):
            vta.write_async(vta.alloc(4), vta.run_async("finish"))


def test_run_reports_are_values(tmp_path):
    import pickle

    with pyvta.Device("cycle") as vta, pyvta.Device() as sim:
        reports = [vta.run("finish"), vta.run_async(isa.assemble("finish")).result(60), sim.run("finish")]
        times = reports[0].insn_cycles()
    again = [pickle.loads(pickle.dumps(report)) for report in reports]
    assert again == reports and again[0].insn_cycles() == times == again[1].insn_cycles()
    assert pickle.loads(pickle.dumps(again[0])).insn_cycles() == times
    with pytest.raises(pyvta.UsageError, match="counts no cycles"):
        again[2].insn_cycles()
