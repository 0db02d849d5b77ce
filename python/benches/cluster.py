"""How much faster two workers sweep than one: python python/benches/cluster.py [ROUNDS]

The same 200 points of demo and of zoo:resnet18, each time into an empty folder of results, on a cluster of one worker
process and of two in turns. Prints medians with quartiles of points a second, and of the ratio within each round.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import time

from distributed import Client, LocalCluster

import pyvta

#: 5 x 4 x 10 points.
AXES = {
    "LOG_WGT_BUFF_SIZE": [14, 15, 16, 17, 18],
    "LOG_ACC_BUFF_SIZE": [14, 15, 16, 17],
    "memory_latency_cycles": [8, 16, 24, 32, 48, 64, 96, 128, 192, 256],
}


def seconds(model: str, client: Client) -> float:
    """What the sweep takes on a client's workers."""
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        frame = pyvta.cluster.sweep(model, AXES, client=client, cache=folder)
        taken = time.perf_counter() - start
    assert len(frame) == 200 and frame["error"].isna().all()
    return taken


def spread(values: list[float]) -> str:
    """The median, and the quartiles in brackets."""
    if len(values) < 2:
        return f"{values[0]:.2f}"
    low, median, high = statistics.quantiles(values, n=4, method="inclusive")
    return f"{median:.2f} ({low:.2f}, {high:.2f})"


def main() -> None:
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    options = {"threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": 40}
    with (
        LocalCluster(n_workers=1, **options) as one,
        LocalCluster(n_workers=2, **options) as two,
        Client(one) as alone,
        Client(two) as both,
    ):
        for model in ("demo", "zoo:resnet18"):
            taken = [(seconds(model, alone), seconds(model, both)) for _ in range(rounds)]
            rate = [spread([200 / pair[workers] for pair in taken]) for workers in (0, 1)]
            ratio = spread([first / second for first, second in taken])
            print(f"{model}: {rate[0]} points/s with one worker, {rate[1]} with two: {ratio} times")


if __name__ == "__main__":
    main()
