"""Programs run by real ranks; skipped where PETSc is not installed."""

import importlib.util
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

collect_ignore = ["programs"]  # run by ranks, not imported
TIMEOUT = 900  # the machine may be shared
MISSING = [name for name in ("petsc4py", "mpi4py") if importlib.util.find_spec(name) is None]
MISSING += [] if shutil.which("mpiexec") else ["mpiexec"]
SETTINGS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",  # more ranks than cores
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",  # which containers forbid
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
}


@pytest.fixture(scope="session")
def launch():
    """Return a function that runs a program, or a module, of Python on ranks."""
    if MISSING:
        pytest.skip(f"{' and '.join(MISSING)} not installed: make setup-mpi")

    def run(ranks, *command, timeout=TIMEOUT):
        return subprocess.run(
            ["mpiexec", "-n", str(ranks), sys.executable, *map(str, command)],
            env=os.environ | SETTINGS,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


@pytest.fixture(scope="session")
def programs():
    """Return the folder of the programs."""
    return Path(__file__).parent / "programs"
