"""Wrong use of the package, which mypy must see. (Read by types_test.py, never run.)"""
import numpy as np

import tutti


def wrong(comm: tutti.Communicator) -> None:
    comm.all_reduce("three")  # error: arg-type
    comm.all_reduce(np.ones(3), op="sum")  # error: arg-type
    comm.broadcast(np.ones(3), root=None)  # error: arg-type
    comm.barrier(stream="one")  # error: arg-type
    comm.reduce_all(np.ones(3))  # error: attr-defined
    comm.split(0).rank  # error: union-attr
    tutti.Window(np.ones(3))  # error: arg-type
    tutti.Config(timeout=3)  # error: call-arg
    tutti.torch_backend  # error: attr-defined
