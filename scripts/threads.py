#!/usr/bin/env python3
"""One image on all cores beside a process on each core: images a second of pyvta on `sim`, in turns.

    scripts/threads.py [MODEL [ROUNDS [SECONDS]]]     (numpy, pyvta; Linux)

A round measures so many processes as there are cores, each with one thread on a core of its own, at once; one of them alone;
and one process with as many threads, all one image at a time. Figures are medians and quartiles over the rounds. VTA_KERNEL
picks the kernel.
"""

import os
import statistics
import subprocess
import sys
import time

# Runs before anything is measured: by then the plan is there.
WARM_S = 3


def work(model, threads, seconds):
    import numpy as np
    import pyvta

    session = pyvta.InferenceSession(model, threads=threads, batch=1)
    given = session.get_inputs()[0]
    shape = [size if isinstance(size, int) else 1 for size in given.shape]
    image = {given.name: np.random.default_rng(0).standard_normal(shape).astype(np.float32)}

    def images_a_second(seconds):
        count, began = 0, time.perf_counter()
        while time.perf_counter() - began < seconds:
            session.run(None, image)
            count += 1
        return count / (time.perf_counter() - began)

    images_a_second(WARM_S)
    print("ready", flush=True)
    sys.stdin.readline()
    print(images_a_second(seconds), flush=True)


def measured(model, threads, cores, seconds):
    """Images a second of a process on each of some sets of cores, together."""
    processes = []
    for own in cores:
        command = [sys.executable, __file__, "--work", model, str(threads), str(seconds)]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        processes.append(subprocess.Popen(["taskset", "-c", own, *command], **pipes))
    for process in processes:
        if process.stdout.readline() != "ready\n":
            sys.exit("a process failed; its error is above")
    for process in processes:
        process.stdin.write("\n")
        process.stdin.flush()
    return sum(float(process.communicate()[0]) for process in processes)


def told(values):
    low, middle, high = statistics.quantiles(values, n=4)
    return f"{middle:,.2f} ({low:,.2f} to {high:,.2f})"


def main(model="zoo:resnet18", rounds="5", seconds="5"):
    cores = [str(core) for core in sorted(os.sched_getaffinity(0))]
    if int(rounds) < 2:
        sys.exit("ROUNDS must be at least 2")
    rows = []
    for turn in range(int(rounds)):
        ways = [
            lambda: measured(model, 1, cores, seconds),
            lambda: measured(model, 1, [cores[turn % len(cores)]], seconds),
            lambda: measured(model, len(cores), [",".join(cores)], seconds),
        ]
        row = [0.0] * len(ways)
        for way in range(len(ways))[:: 1 if turn % 2 else -1]:
            row[way] = ways[way]()
        rows.append(row)
        print("round", turn + 1, *(f"{value:.1f}" for value in row), file=sys.stderr, flush=True)
    many, alone, threads = zip(*rows)
    over = [f"{told([a / b for a, b in zip(*pair)])}" for pair in ((threads, many), (threads, alone), (many, alone))]
    print(f"| {len(cores)} processes, images/s | one alone | {len(cores)} threads | threads over processes | over one | processes over one |")
    print("|---|---|---|---|---|---|")
    print("|", " | ".join([told(many), told(alone), told(threads), *over]), "|")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--work"]:
        work(sys.argv[2], int(sys.argv[3]), float(sys.argv[4]))
    else:
        main(*sys.argv[1:])
