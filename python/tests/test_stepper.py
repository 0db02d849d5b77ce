"""Programs cycle by cycle, beside the command line and in notebooks."""

import json
import os
import subprocess
from pathlib import Path

import pytest

import pyvta

TEXT = """
.inp 0  1*16
.wgt 0  1*16
.wgt +  2*240
.uop 0  dst=0 src=0 wgt=0
load.uop y_size=1 x_size=1
load.inp y_size=1 x_size=1
load.wgt y_size=1 x_size=1 push_next
gemm reset uop_end=1 iter_out=1 iter_in=1
gemm uop_end=1 iter_out=1 iter_in=1 pop_prev push_next
store y_size=1 x_size=1 pop_prev push_prev
finish pop_next
"""


def test_a_run_ends_as_the_command_line_says(tmp_path: Path) -> None:
    file = tmp_path / "program.asm"
    file.write_text(TEXT)
    stepper = pyvta.Stepper(file)
    told = json.loads(
        subprocess.run(
            [os.environ["VTA_BIN"], "exec", str(file), "--device", "cycle", "--json"], check=True, capture_output=True
        ).stdout
    )
    assert stepper.cycles == told["cycles"]
    end = stepper.state(stepper.overview["last"])
    assert end["out"][0]["values"] == [16] + [32] * 15
    assert [insn["line"] for insn in stepper.overview["insns"]] == list(range(6, 13))
    # Backwards, too; nothing is written before the first cycle.
    assert stepper.state()["pads"]["acc"]["tiles"] == []
    assert repr(stepper) == f"<pyvta.Stepper: 7 instructions, {stepper.cycles} cycles>"


def test_a_state_is_between_what_instructions_did() -> None:
    stepper = pyvta.Stepper(TEXT)
    insns = stepper.overview["insns"]
    for cycle in range(stepper.overview["last"] + 1):
        done = stepper.state(cycle)["done"]
        assert sorted(done) == [i for i, insn in enumerate(insns) if insn["done"] is not None and insn["done"] <= cycle], cycle


def test_a_machine_is_chosen(tmp_path: Path) -> None:
    file = tmp_path / "slow.toml"
    file.write_text("memory_latency_cycles = 99\n")
    slow = pyvta.Stepper(TEXT, timing=file, config={"LOG_INP_BUFF_SIZE": 14})
    assert slow.cycles is not None and slow.cycles > 133 == pyvta.Stepper(TEXT).cycles
    assert slow.overview["depths"]["inp"] == 1024


def test_what_is_no_program_is_refused() -> None:
    with pytest.raises(pyvta.InputError, match="line 1"):
        pyvta.Stepper("gem")
    with pytest.raises(pyvta.UsageError, match="no instruction"):
        pyvta.Stepper("")
    with pytest.raises(TypeError, match="config"):
        pyvta.Stepper(TEXT, config=3)  # type: ignore[arg-type]
    stepper = pyvta.Stepper("finish")
    for cycle in (-1, stepper.overview["last"] + 1):
        with pytest.raises(pyvta.UsageError, match=f"cycle {cycle}: the run has the cycles 0 to"):
            stepper.state(cycle)
    with pytest.raises(FileNotFoundError):
        pyvta.Stepper(Path("nowhere.asm"))


def test_a_notebook_asks_for_states(monkeypatch: pytest.MonkeyPatch) -> None:
    anywidget = pytest.importorskip("anywidget")
    stepper = pyvta.Stepper(TEXT)
    sent: list[dict[str, object]] = []
    monkeypatch.setattr(anywidget.AnyWidget, "send", lambda _, content: sent.append(content))
    bundle, *_ = [stepper._repr_mimebundle_()]
    data = bundle[0] if isinstance(bundle, tuple) else bundle
    assert "application/vnd.jupyter.widget-view+json" in data
    for cycle in (-1, 30):
        stepper.widget._handle_custom_msg({"cycle": cycle}, [])
    assert sent == [
        {"cycle": -1, "state": stepper.state()},
        {"cycle": 30, "state": stepper.state(30)},
    ]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "anywidget", None)
    with pytest.raises(ImportError, match=r"pip install pyvta\[notebook\]"):
        _ = pyvta.Stepper(TEXT).widget
