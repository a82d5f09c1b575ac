"""torchgate: check, package and serve PyTorch models behind their own gateway.

Importing this package starts nothing and does not import torch. `declare` has the one public name, `model`; it is
imported when asked for, since every process of a service imports this package first.

Rooms, from caller to callee; who may import whom is in ARCHITECTURE.md:

- `__main__`, `cli`: the command line.
- `demo`: the model and the page of ``torchgate demo``.
- `control`: changing a running service (prepared).
- `supervisor`: starts, watches and replaces all other processes.
- `gateway`: HTTP to clients.
- `inference`: a gateway's side of a model; `upstream`: of pools of other servers.
- `worker`: one replica of a model; the only room with torch.
- `package`, `check`, `nginx`: prepared.
- `observe`: metrics and activity in shared memory.
- `link`: sockets and shared memory between processes.
- `routing`: from a request to its route, and header edits; pure.
- `wire`: HTTP/1.1 and frames as bytes and events.
- `schema`: frozen data.
- `errors`, `clock`: causes, and monotonic time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torchgate.declare import model

__all__ = ["model"]


def __getattr__(name: str) -> Any:
    if name == "model":
        from torchgate.declare import model

        return model
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
