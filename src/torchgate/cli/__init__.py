"""The command ``torchgate``: one file per command, and how events look to people.

Reading order:

- `main` (here): the entry point; turns errors into one message and an exit code
- `app`: the commands and global options
- `serve`, `validate`, `explain`, `schema`, `demo`, `version`: one file per command
- `judged`: what `validate` says
- `explained`, `explained_text`: what `explain` says
- `early`: a signal before the service listens for them itself
- `head_start`: workers are started before the options are read in full
- `build`: what was typed -> `torchgate.schema.serve.ServeConfig`
- `config`: a configuration file -> the same
- `dev_certificates`: a local CA and a certificate of this machine
- `checks`: what other rooms say about a configuration
- `machine`: what each model gets of this machine
- `values`: sizes, and options that may differ by model
- `text`, `summary`, `lines`: events as text for people, or as JSON lines
- `queued`: the console behind a bounded queue

Nothing here imports torch or numpy; what a command needs is imported when it runs.
"""

from __future__ import annotations

import os
import sys

from torchgate.cli import early


def main() -> None:
    """Run the command line and exit with its code."""
    serves = sys.argv[1:2] in (["serve"], ["demo"])
    if serves:
        early.listen()  # before anything else: as process 1 an unhandled signal is lost
    _open_standard_streams()
    if not serves:
        _run()
        return
    from torchgate.cli import head_start

    try:
        head_start.begin(sys.argv[1:])
        _run()
    finally:
        head_start.workers.end()


def _run() -> None:
    from torchgate.cli.app import app
    from torchgate.cli.text import show_error
    from torchgate.errors import ConfigError

    try:
        app(prog_name="torchgate")
    except ConfigError as error:
        show_error(error)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        sys.stderr.close()
        sys.exit(1)


def _open_standard_streams() -> None:
    """Point closed standard descriptors at nothing, or the next socket would become somebody's standard output."""
    for fd, mode in ((0, os.O_RDONLY), (1, os.O_WRONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(fd)
        except OSError:
            opened = os.open(os.devnull, mode)  # takes the lowest free number, which is this one
            os.set_inheritable(opened, True)
    if sys.stdout is None:
        sys.stdout = os.fdopen(1, "w", closefd=False)
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
