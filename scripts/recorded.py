#!/usr/bin/env python3
"""Recorded runs of the original over two libraries of its driver interface, in turns: nanoseconds of each run.

    scripts/recorded.py FOLDER LIB PEER [ROUNDS]

FOLDER holds runs as the archives of conformance/tvm do, wherever insns.bin lies. Each round runs each program in a process
of its own, ten times, with each library; capi/benches/recorded.c does it. Figures are medians and quartiles over the rounds
of LIB's time over PEER's of the same round, and medians of nanoseconds. A run's bytes are compared with what was recorded;
where those of the tenth aren't equal, the peer's mustn't be, either: some programs leave tokens or add to what they find.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS, TOLD = 10, {"first": 0, "second": 1, "third": 2, "tenth": 9}
# The original waits for ever at times, in one of hundreds of processes.
WAITED, TRIES = 10, 5


def ran(program, library, run):
    for _ in range(TRIES):
        try:
            done = subprocess.run([program, library, run, str(RUNS)], capture_output=True, text=True, timeout=WAITED)
        except subprocess.TimeoutExpired:
            print(f"{library} waited for ever in {run}", file=sys.stderr)
            continue
        if done.returncode not in (0, 1):
            sys.exit(f"{library} can't run {run}: {done.stderr}")
        return [int(line) for line in done.stdout.split()], done.returncode == 0
    sys.exit(f"{library} doesn't end in {run}")


def main(folder, library, peer, rounds=9):
    libraries = [str(Path(path).resolve()) for path in (library, peer)]
    runs = sorted(path.parent for path in Path(folder).rglob("insns.bin"))
    if not runs:
        sys.exit(f"{folder} holds no recorded run")
    with tempfile.TemporaryDirectory() as scratch:
        program = f"{scratch}/recorded"
        source = Path(__file__).parents[1] / "capi/benches/recorded.c"
        subprocess.run(["cc", "-O2", source, "-ldl", "-o", program], check=True)
        took = {run: ([], []) for run in runs}
        for number in range(int(rounds)):
            for run in runs:
                for which in (0, 1) if number % 2 else (1, 0):
                    took[run][which].append(ran(program, libraries[which], run))
    print("| run |" + "".join(f" {name}, ns, of the peer's |" for name in TOLD) + "\n|---|" + "---|" * len(TOLD))
    ratios = {name: [] for name in TOLD}
    for run, (ours, theirs) in took.items():
        if not all(same for _, same in ours) and any(same for _, same in theirs):
            sys.exit(f"{library} computes something else than what is recorded in {run}")
        line = f"| {run.parent.name}/{run.name} |"
        for name, at in TOLD.items():
            here = [times[at] for times, _ in ours]
            each = [mine / times[at] for mine, (times, _) in zip(here, theirs)]
            low, middle, high = statistics.quantiles(each, n=4, method="inclusive") if len(each) > 1 else each * 3
            ratios[name].append(middle)
            line += f" {statistics.median(here):.0f}, {middle:.2f} ({low:.2f} to {high:.2f}) |"
        print(line)
    spans = [f"{min(r):.2f} to {max(r):.2f}, in the middle {statistics.median(r):.2f}" for r in ratios.values()]
    print("| all |" + "".join(f" {span} |" for span in spans))


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5):
        sys.exit(__doc__)
    main(*sys.argv[1:])
