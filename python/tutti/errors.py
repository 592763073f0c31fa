"""What Tutti raises: one class for each result code of the C interface, with the library's whole sentence."""


class Error(RuntimeError):
    """A failed call. str() is the sentence that names rank, operation, step and reason; `result` is its code."""

    result: int = 3


class DeviceError(Error):
    """A GPU or its driver refused."""

    result = 1


class SystemError(Error):  # noqa: A001 - tutti.SystemError, as in the C interface
    """The operating system refused."""

    result = 2


class InternalError(Error):
    """A fault of the library itself."""

    result = 3


class InvalidArgument(Error, ValueError):
    """An argument has a value that it cannot have; nothing was done."""

    result = 4


class InvalidUsage(Error):
    """The call is not allowed now; nothing was done."""

    result = 5


class RemoteError(Error):
    """Another rank died, left or failed."""

    result = 6


class Timeout(Error, TimeoutError):
    """The deadline passed."""

    result = 8


class Mismatch(Error):
    """Ranks called different operations, or wait for each other in a circle."""

    result = 9


class Aborted(Error):
    """abort() was called on this rank or another, or a group of one failed on another communicator."""

    result = 10


class Unsupported(Error, NotImplementedError):
    """A valid request that this build or machine cannot serve."""

    result = 11


BY_RESULT = {kind.result: kind for kind in (DeviceError, SystemError, InternalError, InvalidArgument, InvalidUsage,
                                           RemoteError, Timeout, Mismatch, Aborted, Unsupported)}
