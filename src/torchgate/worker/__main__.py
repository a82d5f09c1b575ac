"""Entry of a worker process: ``python -m torchgate.worker CONTROL_FD``, started by the supervisor only.

The main thread imports torch at once, while the I/O thread already waits for orders; then it loads the model and
becomes the compute thread. Exit codes: 0 drained, 3 the model can't be served (sent as `ModelFailed` first), 70 a bug
or a thread that died.
"""

from __future__ import annotations

import faulthandler
import gc
import io
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable

from torchgate.errors import ModelImportError, ModelLoadError
from torchgate.link.control import ControlLink
from torchgate.schema.messages import ExitCause, ModelFailed
from torchgate.worker.log import WorkerLog
from torchgate.worker.loop import Failed, IoLoop
from torchgate.worker.orphan import end_group, leave_with_parent

_CRASHED = 70  # EX_SOFTWARE
_SWITCH_INTERVAL_S = 0.0002
"""How long one thread may keep the interpreter from another; the default of 5 ms would be paid at every operation
of the model while the I/O thread decodes. See docs/explanation/batching.md for the measurement."""


def main(arguments: list[str]) -> None:
    """Run a worker; ends with ``os._exit`` on every path."""
    if len(arguments) != 1 or not arguments[0].isdigit():
        sys.exit("torchgate.worker is started by `torchgate serve`; it takes a descriptor number")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # stdout is the access log's; models print
    if isinstance(sys.stdout, io.TextIOWrapper):
        # Whole lines, at once: a crash loses none, and none is mixed with what other processes write.
        sys.stdout.reconfigure(line_buffering=True)
    # Written from C, whoever holds the interpreter lock: where a fatal signal struck, and, when the supervisor
    # asks with SIGUSR1 before it ends a hung worker, where each thread is.
    faulthandler.enable()
    faulthandler.register(signal.SIGUSR1)
    leave_with_parent()
    log = WorkerLog()

    def leave(code: int) -> None:
        # Not sys.exit: other threads may be inside the model, and its destructors are not awaited.
        log.flush(1.0)
        if loop.is_orphan:
            end_group()
        os._exit(code)

    def crashed(error: BaseException) -> None:
        log.fatal("a thread of the worker failed; the process ends", error)
        leave(_CRASHED)

    control = ControlLink(socket.socket(fileno=int(arguments[0])))
    loop = IoLoop(control, log, leave)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the group; the supervisor decides
    signal.signal(signal.SIGTERM, lambda _number, _frame: None)
    signal.set_wakeup_fd(loop.signal_write_fd, warn_on_full_buffer=False)
    sys.setswitchinterval(_SWITCH_INTERVAL_S)
    threading.Thread(target=_guarded, args=(loop.run, crashed), name="io", daemon=True).start()
    _guarded(lambda: _load_and_compute(loop, log, crashed), crashed)


def _guarded(body: Callable[[], None], crashed: Callable[[BaseException], None]) -> None:
    try:
        body()
    except BaseException as error:  # noqa: BLE001 - whatever it is, the process must not go on without the thread
        crashed(error)


def _load_and_compute(
    loop: IoLoop, log: WorkerLog, crashed: Callable[[BaseException], None]
) -> None:
    gc.disable()  # importing makes hundreds of thousands of objects that stay: looking at them is a tenth of the start
    try:
        import torch  # noqa: F401 - at once, before any order
    except ImportError as error:
        _fail(loop, ModelImportError(f"PyTorch can't be imported: {error}", "reinstall torch"))
        return
    from torchgate.worker.start import bring_up

    gc.freeze()
    gc.enable()
    order = loop.orders.get()
    try:
        compute, loaded = bring_up(order, loop, log, crashed)
    except ModelLoadError as error:
        _fail(loop, error)
        return
    loop.post(loaded)
    compute.run_forever()


def _fail(loop: IoLoop, error: ModelLoadError) -> None:
    loop.post(Failed(failure_of(error), error.exit_code))
    threading.Event().wait()  # the I/O thread ends the process when the message is out


def failure_of(error: ModelLoadError) -> ModelFailed:
    """Return what the supervisor is told: an import error is told apart, its remedy is another one."""
    imported = isinstance(error, ModelImportError)
    return ModelFailed(
        cause=ExitCause.IMPORT_ERROR if imported else ExitCause.LOAD_ERROR,
        what=error.what,
        hint=error.hint,
        detail=error.detail,
    )


if __name__ == "__main__":
    main(sys.argv[1:])
