"""The pages' blocks of Python run as they stand, one after the other."""

import os
import re
from ast import literal_eval
from pathlib import Path

import numpy as np
import pytest

from conftest import ROOT

BLOCK = re.compile(r"(?P<marker><!-- not run: [^\n]*-->\n)?^```python\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page, least", [("python.md", 6), ("from-others.md", 3)])
def test_a_pages_blocks_run(page, least, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = Path("docs", page).read_text()
    names, ran = {}, 0
    for block in BLOCK.finditer(text):
        if not block["marker"]:
            line = text.count("\n", 0, block.start("code"))
            code = compile("\n" * line + block["code"], os.fspath(ROOT / "docs" / page), "exec")
            exec(code, names)
            ran += 1
    assert ran >= least


def test_the_first_lines_give_what_the_command_line_does(vta, monkeypatch, capsys, tmp_path):
    monkeypatch.chdir(ROOT)
    names = {}
    exec(BLOCK.search(Path("docs/python.md").read_text())["code"], names)
    told = literal_eval(capsys.readouterr().out)
    vta("run", "demo", "--input", "models/demo/cifar10_test200.npz", "-o", tmp_path / "out.npz")
    with np.load(tmp_path / "out.npz") as outputs:
        np.testing.assert_array_equal(names["logits"], outputs["logits"])
    assert told == [names["names"][label] for label in names["logits"].argmax(axis=1)[:10]]
    assert (names["logits"].argmax(axis=1) == names["data"]["labels"]).mean() > 0.85
