#!/usr/bin/env python3
"""Recorded runs of the original over two libraries of its driver interface, in turns: nanoseconds of each run.

    scripts/recorded.py FOLDER LIB PEER [ROUNDS [cpu]]

FOLDER holds runs as the archives of conformance/tvm do, wherever insns.bin lies. Each round runs each program in a process
of its own, twelve times, with each library; capi/benches/recorded.c does it, by the clock or by the processor's time of all
threads. Figures are medians of nanoseconds, medians and quartiles over the rounds of LIB's time over PEER's of the same round,
and of LIB's longest later run over its first. Bytes of the last run are compared with what was recorded; where they aren't
equal, the peer's mustn't be, either: some programs leave tokens or add to what they find.
"""

import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

RUNS, TOLD = 12, {"first": 0, "second": 1, "third": 2, "tenth": 9}
# The original waits for ever at times, in one of hundreds of processes.
WAITED, TRIES = 10, 5


def ran(program, library, run, clock):
    for _ in range(TRIES):
        try:
            done = subprocess.run([program, library, run, str(RUNS), *clock], capture_output=True, text=True, timeout=WAITED)
        except subprocess.TimeoutExpired:
            print(f"{library} waited for ever in {run}", file=sys.stderr)
            continue
        if done.returncode not in (0, 1):
            sys.exit(f"{library} can't run {run}: {done.stderr}")
        return [int(line) for line in done.stdout.split()], done.returncode == 0
    sys.exit(f"{library} doesn't end in {run}")


def spread(values):
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return middle, f"{middle:.2f} ({low:.2f} to {high:.2f})"


def main(folder, library, peer, rounds=9, *clock):
    libraries = [str(Path(path).resolve()) for path in (library, peer)]
    runs = sorted(path.parent for path in Path(folder).rglob("insns.bin"))
    if not runs:
        sys.exit(f"{folder} holds no recorded run")
    if int(rounds) < 2:
        sys.exit("there must be two rounds")
    with tempfile.TemporaryDirectory() as scratch:
        program = f"{scratch}/recorded"
        source = Path(__file__).parents[1] / "capi/benches/recorded.c"
        subprocess.run(["cc", "-O2", source, "-ldl", "-o", program], check=True)
        took = {run: ([], []) for run in runs}
        for number in range(int(rounds)):
            for run in runs:
                for which in (0, 1) if number % 2 else (1, 0):
                    took[run][which].append(ran(program, libraries[which], run, clock))
    told = [f"{name}, ns, of the peer's" for name in TOLD]
    print("| run | " + " | ".join([*told, "longest over the first"]) + " |\n|---|" + "---|" * (len(TOLD) + 1))
    ratios = {name: [] for name in [*TOLD, "longest"]}
    for run, (ours, theirs) in took.items():
        if not all(same for _, same in ours) and any(same for _, same in theirs):
            sys.exit(f"{library} computes something else than what is recorded in {run}")
        line = f"| {run.parent.name}/{run.name} |"
        for name, at in TOLD.items():
            here = [times[at] for times, _ in ours]
            each = [mine / times[at] for mine, (times, _) in zip(here, theirs)]
            middle, text = spread(each)
            ratios[name].append(middle)
            line += f" {statistics.median(here):,.0f}, {text} |"
        middle, text = spread([max(times[1:]) / times[0] for times, _ in ours])
        ratios["longest"].append(middle)
        print(f"{line} {text} |")
    spans = [f"{min(r):.2f} to {max(r):.2f}, in the middle {statistics.median(r):.2f}" for r in ratios.values()]
    print("| all |" + "".join(f" {span} |" for span in spans))


if __name__ == "__main__":
    if len(sys.argv) not in (4, 5, 6):
        sys.exit(__doc__)
    main(*sys.argv[1:])
