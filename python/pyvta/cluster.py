"""Sweeps, evaluations and tuning over a cluster.

The same lines run on this machine's threads (without a client), on two local processes, and on
Slurm, PBS or LSF through `dask-jobqueue`:

>>> from distributed import Client, LocalCluster
>>> client = Client(LocalCluster(n_workers=2, threads_per_worker=1))
>>> pyvta.cluster.sweep("zoo:resnet18", {"LOG_BLOCK": [4, 5]}, client=client)

Every task writes its result as a file named by model, options and build of pyvta into a folder that
all share (`cache=`). A worker, scheduler or client that is killed loses at most the tasks in flight;
a second start computes what is missing; two clients share results. A point that fails is a row with
its error.
"""

from pyvta._evaluate import Evaluation, evaluate
from pyvta._explore import explore
from pyvta._sweep import sweep
from pyvta._tune import Tuned, tune

__all__ = ["Evaluation", "Tuned", "evaluate", "explore", "sweep", "tune"]
