"""The backend for machines without a C++ compiler: a ProcessGroup in Python over the bindings. Calls run on the caller's
thread, or, where async_op asks for it, on one thread of the group; point to point goes with the same thread, in order."""
import concurrent.futures
import datetime
import time

import torch
import torch.distributed as dist

import tutti

_DTYPES = {torch.bool: tutti.Type.BOOL, torch.bfloat16: tutti.Type.BFLOAT16, torch.float8_e4m3fn: tutti.Type.FLOAT8E4M3,
           torch.float8_e5m2: tutti.Type.FLOAT8E5M2, torch.uint8: tutti.Type.UINT8, torch.int8: tutti.Type.INT8,
           torch.int16: tutti.Type.INT16, torch.int32: tutti.Type.INT32, torch.int64: tutti.Type.INT64,
           torch.float16: tutti.Type.FLOAT16, torch.float32: tutti.Type.FLOAT32, torch.float64: tutti.Type.FLOAT64,
           torch.complex64: tutti.Type.COMPLEX64, torch.complex128: tutti.Type.COMPLEX128}
_OPS = {dist.ReduceOp.SUM: tutti.SUM, dist.ReduceOp.AVG: tutti.AVG, dist.ReduceOp.PRODUCT: tutti.PROD,
        dist.ReduceOp.MIN: tutti.MIN, dist.ReduceOp.MAX: tutti.MAX, dist.ReduceOp.BAND: tutti.BAND,
        dist.ReduceOp.BOR: tutti.BOR, dist.ReduceOp.BXOR: tutti.BXOR}


class PythonWork(dist.Work):
    """A call that may still run."""

    def __init__(self, result: list[torch.Tensor], pending: concurrent.futures.Future | None, source: int = -1):
        super().__init__()
        self._result, self._pending, self._source = result, pending, source

    def wait(self, timeout: datetime.timedelta = datetime.timedelta(0)) -> bool:
        if self._pending is not None:
            self._pending.result(timeout.total_seconds() or None)
        return True

    def is_completed(self) -> bool:
        return self._pending is None or self._pending.done()

    def is_success(self) -> bool:
        return self.is_completed() and (self._pending is None or self._pending.exception() is None)

    def result(self) -> list[torch.Tensor]:
        return self._result

    def _source_rank(self) -> int:
        return self._source

    def get_future(self) -> torch.futures.Future:
        future: torch.futures.Future = torch.futures.Future()
        if self._pending is None:
            future.set_result(self._result)
        else:
            def settle(pending):
                if (error := pending.exception()) is not None:
                    future.set_exception(error)
                else:
                    future.set_result(self._result)
            self._pending.add_done_callback(settle)
        return future


def _bytes(tensor: torch.Tensor):
    """A contiguous tensor's memory as an array of bytes, of any type that PyTorch has."""
    return tensor.detach().reshape(-1).view(torch.uint8).numpy()


def _only(tensors: list[torch.Tensor]) -> torch.Tensor:
    if len(tensors) != 1:
        raise ValueError(f"tutti: there are {len(tensors)} tensors in place of one")
    _check(tensors[0])
    return tensors[0]


def _check(tensor: torch.Tensor) -> None:
    if tensor.device.type != "cpu":
        raise NotImplementedError(f"tutti: the tensor is on {tensor.device}, which needs the compiled backend")
    if tensor.layout != torch.strided:
        raise NotImplementedError("tutti: sparse tensors need the compiled backend")


def _flat(tensors: list[torch.Tensor]) -> torch.Tensor:
    for tensor in tensors:
        _check(tensor)
    return torch.cat([tensor.detach().resolve_conj().contiguous().reshape(-1) for tensor in tensors])


def _scatter_back(flat: torch.Tensor, tensors: list[torch.Tensor]) -> None:
    with torch.no_grad():
        first = 0
        for tensor in tensors:
            tensor.copy_(flat[first:first + tensor.numel()].view(tensor.shape))
            first += tensor.numel()


class PythonProcessGroup(dist.ProcessGroup):
    """A group whose calls are Tutti's, made from Python."""

    def __init__(self, store: dist.Store, rank: int, size: int, timeout: datetime.timedelta):
        super().__init__(rank, size)
        self._rank, self._size = rank, size
        milliseconds = min(int(timeout.total_seconds() * 1000), 2**31 - 1)
        self._comm = self._join(store, tutti.Config(timeout_ms=milliseconds))
        self._thread = concurrent.futures.ThreadPoolExecutor(1, "tutti")
        self._last: concurrent.futures.Future | None = None

    def _join(self, store: dist.Store, config: tutti.Config) -> tutti.Communicator:
        """Rank 0 hands the id to the others through the store. One of an attempt before may lie there still."""
        if self._rank == 0:
            store.set("tutti/id", tutti.unique_id().hex())
        patience = time.monotonic() + 10
        while True:
            job = store.get("tutti/id")
            try:
                return tutti.Communicator.join(self._size, bytes.fromhex(job.decode()), self._rank, config)
            except tutti.Error as error:
                while self._rank != 0 and store.get("tutti/id") == job and time.monotonic() < patience:
                    time.sleep(0.02)
                if isinstance(error, tutti.Timeout) or store.get("tutti/id") == job:
                    raise dist.DistBackendError(f"tutti: {error}") from error

    def getBackendName(self) -> str:
        return "tutti"

    # What calls share: they run in their order, on the caller's thread where nothing stands before.

    def _run(self, body, result: list[torch.Tensor], options=None) -> PythonWork:
        def guarded():
            try:
                body()
            except (tutti.InvalidArgument, tutti.Unsupported) as error:
                raise ValueError(f"tutti: {error}") from error
            except tutti.Error as error:
                raise dist.DistBackendError(f"tutti: {error}") from error
        if not getattr(options, "asyncOp", True) and (self._last is None or self._last.done()):
            guarded()
            return PythonWork(result, None)
        self._last = self._thread.submit(guarded)
        return PythonWork(result, self._last)

    def _operator(self, op, tensor: torch.Tensor) -> int:
        for theirs, ours in _OPS.items():
            if op == theirs:
                return ours
        raise ValueError(f"tutti: {op} needs the compiled backend")

    def _type(self, tensor: torch.Tensor) -> int:
        return _DTYPES[tensor.dtype] if tensor.dtype in _DTYPES else tutti.opaque(tensor.element_size())

    def _check_blocks(self, tensors: list[torch.Tensor]) -> None:
        if len(tensors) != self._size:
            raise ValueError(f"tutti: there are {len(tensors)} tensors for {self._size} ranks")

    # torch.distributed's calls.

    def allreduce(self, tensors, opts):
        tensor = _only(tensors)
        op, kind = self._operator(opts.reduceOp, tensor), self._type(tensor)

        def body():
            flat = _flat([tensor])
            self._comm.all_reduce(_bytes(flat), op=op, datatype=kind)
            _scatter_back(flat, [tensor])
        return self._run(body, tensors, opts)

    def allreduce_coalesced(self, tensors, opts):
        works = [self.allreduce([tensor], opts) for tensor in tensors]
        return PythonWork(tensors, works[-1]._pending)

    def broadcast(self, tensors, opts):
        tensor, root = _only(tensors), opts.rootRank

        def body():
            flat = _flat([tensor])
            self._comm.broadcast(_bytes(flat), root, datatype=self._type(tensor))
            _scatter_back(flat, [tensor])
        return self._run(body, tensors, opts)

    def reduce(self, tensors, opts):
        tensor, root = _only(tensors), opts.rootRank
        op = self._operator(opts.reduceOp, tensor)

        def body():
            flat = _flat([tensor])
            out = torch.empty_like(flat) if root == self._rank else None
            self._comm.reduce(_bytes(flat), None if out is None else _bytes(out), op, root, datatype=self._type(tensor))
            if out is not None:
                _scatter_back(out, [tensor])
        return self._run(body, tensors, opts)

    def allgather(self, output_lists, inputs, opts):
        tensor, outputs = _only(inputs), output_lists[0]
        self._check_blocks(outputs)

        def body():
            flat = torch.empty(sum(o.numel() for o in outputs), dtype=tensor.dtype)
            self._comm.all_gather_v(_bytes(_flat([tensor])), _bytes(flat), [o.numel() for o in outputs],
                                    datatype=self._type(tensor))
            _scatter_back(flat, outputs)
        return self._run(body, outputs, opts)

    def _allgather_base(self, output, tensor, opts):
        def body():
            flat = torch.empty(output.numel(), dtype=output.dtype)
            self._comm.all_gather(_bytes(_flat([tensor])), _bytes(flat), datatype=self._type(tensor))
            _scatter_back(flat, [output])
        return self._run(body, [output], opts)

    def gather(self, output_lists, inputs, opts):
        tensor, root = _only(inputs), opts.rootRank
        outputs = output_lists[0] if self._rank == root else []
        if self._rank == root:
            self._check_blocks(outputs)

        def body():
            flat = torch.empty(sum(o.numel() for o in outputs), dtype=tensor.dtype)
            self._comm.gather_v(_bytes(_flat([tensor])), _bytes(flat) if outputs else None,
                                [o.numel() for o in outputs] if outputs else None, root, datatype=self._type(tensor))
            _scatter_back(flat, outputs)
        return self._run(body, outputs, opts)

    def scatter(self, outputs, input_lists, opts):
        tensor, root = _only(outputs), opts.rootRank
        inputs = input_lists[0] if self._rank == root else []
        if self._rank == root:
            self._check_blocks(inputs)

        def body():
            flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
            self._comm.scatter_v(_bytes(_flat(inputs)) if inputs else None, [i.numel() for i in inputs] if inputs else None,
                                 _bytes(flat), root, datatype=self._type(tensor))
            _scatter_back(flat, [tensor])
        return self._run(body, outputs, opts)

    def reduce_scatter(self, outputs, input_lists, opts):
        tensor, inputs = _only(outputs), input_lists[0]
        self._check_blocks(inputs)
        op = self._operator(opts.reduceOp, tensor)

        def body():
            flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
            self._comm.reduce_scatter_v(_bytes(_flat(inputs)), [i.numel() for i in inputs], _bytes(flat), op,
                                        datatype=self._type(tensor))
            _scatter_back(flat, [tensor])
        return self._run(body, outputs, opts)

    def _reduce_scatter_base(self, output, tensor, opts):
        op = self._operator(opts.reduceOp, tensor)

        def body():
            flat = torch.empty(output.numel(), dtype=output.dtype)
            self._comm.reduce_scatter(_bytes(_flat([tensor])), _bytes(flat), op, datatype=self._type(tensor))
            _scatter_back(flat, [output])
        return self._run(body, [output], opts)

    def alltoall_base(self, output, tensor, output_splits, input_splits, opts):
        def shares(of, rows):
            if not rows and (of.shape[0] if of.dim() else 1) % self._size:
                raise ValueError(f"tutti: {of.shape[0]} rows cannot be shared out evenly among {self._size} ranks")
            width = of.numel() // of.shape[0] if of.shape[0] else 0
            return [r * width for r in rows] or [of.numel() // self._size] * self._size
        sent, received = shares(tensor, input_splits), shares(output, output_splits)

        def body():
            flat = torch.empty(output.numel(), dtype=output.dtype)
            self._comm.all_to_all_v(_bytes(_flat([tensor])), sent, _bytes(flat), received, datatype=self._type(tensor))
            _scatter_back(flat, [output])
        return self._run(body, [output], opts)

    def alltoall(self, outputs, inputs, opts):
        self._check_blocks(outputs)
        self._check_blocks(inputs)

        def body():
            flat = torch.empty(sum(o.numel() for o in outputs), dtype=outputs[0].dtype)
            self._comm.all_to_all_v(_bytes(_flat(inputs)), [i.numel() for i in inputs], _bytes(flat),
                                    [o.numel() for o in outputs], datatype=self._type(inputs[0]))
            _scatter_back(flat, outputs)
        return self._run(body, outputs, opts)

    # The names of PyTorch 2.15.
    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base
    all_to_all_single = alltoall_base

    def barrier(self, opts=None):
        return self._run(self._comm.barrier, [], opts)

    def send(self, tensors, peer, tag):
        flat = _flat([_only(tensors)])
        if tag:
            raise NotImplementedError("tutti: tags need the compiled backend")
        return self._run(lambda: self._comm.send(_bytes(flat), peer, datatype=self._type(flat)), [])

    def recv(self, tensors, peer, tag):
        tensor = _only(tensors)
        if tag:
            raise NotImplementedError("tutti: tags need the compiled backend")

        def body():
            flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
            self._comm.recv(_bytes(flat), peer, datatype=self._type(tensor))
            _scatter_back(flat, [tensor])
        return self._run(body, tensors)

    def abort(self):
        self._comm.abort()

    def shutdown(self):
        self._thread.shutdown()
        if not self._comm.closed:
            self._comm.close()
