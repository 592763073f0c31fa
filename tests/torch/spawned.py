"""Ranks that torch.multiprocessing.spawn starts, as Lightning does: for works_with_test.py."""
import tempfile

import torch
import torch.distributed as dist

import tutti.torch  # noqa: F401 - registers the backend


def be_rank(rank, size, store):
    dist.init_process_group("tutti", init_method=f"file://{store}", rank=rank, world_size=size)
    tensor = torch.full((3,), float(rank))
    dist.all_reduce(tensor)
    if rank == 0:
        print(f"the sum over {size} spawned ranks is {tensor[0].item()}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        torch.multiprocessing.spawn(be_rank, (2, f"{folder}/store"), nprocs=2)
