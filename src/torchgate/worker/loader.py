"""Load a model: TARGET, weights, example, probes, and the signature they give.

Reads straight down: `load` calls `torchgate.worker.target`, `torchgate.worker.weights`,
`torchgate.worker.example`, `torchgate.worker.probe`, `torchgate.worker.lengths` and
`torchgate.worker.warm`, in that order. Nothing here is on the path of a request except
`LoadedModel.run`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from torchgate.declare import Declaration
from torchgate.errors import ConfigError, ModelLoadError
from torchgate.schema.config import ModelConfig
from torchgate.schema.signature import Batching, Signature, TensorSpec
from torchgate.schema.target import parse_target
from torchgate.worker.call import Call, bind
from torchgate.worker.dtypes import DATATYPE
from torchgate.worker.example import find_example, input_names
from torchgate.worker.lengths import Shapes, find_shapes
from torchgate.worker.probe import Reading, read
from torchgate.worker.target import Resolved, resolve
from torchgate.worker.trace import message_of
from torchgate.worker.warm import measure
from torchgate.worker.weights import load_weights

Progress = Callable[[str, str], None]
"""``progress(phase, detail)``; phases are ``import``, ``load``, ``weights``, ``probe``, ``warm``."""

DEFAULT_MAX_ROWS = 256
"""Most rows in one call when the user names no number and the rows are small."""

BATCH_BYTES = 64 * 1024 * 1024
"""Inputs and outputs of one call stay below this unless the user says otherwise."""

LEAST_MAX_ROWS = 8
EXAMPLE_LIMIT = 64 * 1024
"""Largest example body shown in ``/openapi.json``, in bytes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model that was called and found to work.

    Attributes:
        signature: Its contract.
        device: Where its parameters are and its inputs must be.
        declaration: What the user declared, or None.
        example: One row (with the row dimension), or the whole example without rows; on `device`.
        batch_us: Rows to measured execute time, µs; always has 1.
        call: How it is called.
    """

    signature: Signature
    device: torch.device
    declaration: Declaration | None
    example: dict[str, torch.Tensor]
    batch_us: dict[int, float]
    call: Call

    def run(self, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """Call the model once under ``inference_mode``; see `Call.run`."""
        return self.call.run(inputs)


def load(config: ModelConfig, work_dir: str, progress: Progress) -> LoadedModel:
    """Load, probe and warm one model.

    Args:
        config: What to serve.
        work_dir: Directory relative paths start from and that is put first on ``sys.path``.
        progress: Told what is being done.

    Raises:
        ModelImportError: The user's code can't be imported.
        ModelLoadError: The model can't be found, built, fed or run.
    """
    device = _device(config.device)
    progress("import", config.target)
    try:
        target = parse_target(config.target)
    except ConfigError as error:
        raise ModelLoadError(error.what, error.hint) from None
    resolved = resolve(target, work_dir)
    notes = list(resolved.notes)
    if config.weights:
        progress("weights", config.weights)
        notes += load_weights(resolved.module, config.weights, work_dir)
    progress("load", str(device))
    _place(resolved.module, device)
    progress("probe", "")
    names = input_names(resolved)
    example = find_example(resolved, names, config.example, work_dir)
    declaration = resolved.declaration
    outputs = declaration.outputs if declaration else ()
    positional, keywords = bind(resolved.module, names, tuple(example.tensors))
    call = Call(resolved.module, positional, keywords, outputs)
    reading = read(call, example, device)
    shapes = find_shapes(call, reading.example, has_rows=reading.has_rows)
    progress("warm", "")
    max_rows = _max_rows(config.max_batch, reading, call)
    batch_us = measure(call, reading.example, max_rows, _waiter(device))
    signature = _signature(config, resolved, call, reading, shapes, max_rows, tuple(notes))
    return LoadedModel(
        signature=signature,
        device=device,
        declaration=declaration,
        example=reading.example,
        batch_us=batch_us,
        call=call,
    )


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelLoadError(f"there is no device {name!r}: {message_of(error)}") from None
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise ModelLoadError(
                f"device {name!r} isn't there: PyTorch {torch.__version__} sees {count} GPUs",
                "use --device cpu, or install the CUDA build of PyTorch and its driver",
            )
        torch.cuda.set_device(device)
    return device


def _place(module: torch.nn.Module, device: torch.device) -> None:
    for parameter in module.parameters():
        parameter.requires_grad_(requires_grad=False)
    try:
        module.to(device)
    except (RuntimeError, NotImplementedError) as error:
        raise ModelLoadError(f"the model can't be put on {device}: {message_of(error)}") from None


def _waiter(device: torch.device) -> Callable[[], None]:
    if device.type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    return lambda: None


def _max_rows(asked: int, reading: Reading, call: Call) -> int:
    if not reading.has_rows:
        return 1
    if reading.only_rows:
        return reading.only_rows
    if asked:
        return asked
    outputs = call.run(reading.example)
    tensors = (*reading.example.values(), *outputs.values())
    row_bytes = sum(t.numel() * t.element_size() for t in tensors)
    fitting = BATCH_BYTES // max(row_bytes, 1)
    if fitting < LEAST_MAX_ROWS:
        return LEAST_MAX_ROWS
    return min(DEFAULT_MAX_ROWS, 1 << int(math.log2(fitting)))


def _signature(
    config: ModelConfig,
    resolved: Resolved,
    call: Call,
    reading: Reading,
    shapes: Shapes,
    max_rows: int,
    notes: tuple[str, ...],
) -> Signature:
    outputs = call.run(reading.example)
    declaration = resolved.declaration
    ins = {name: _spec(name, t, shapes.inputs[name]) for name, t in reading.example.items()}
    outs = {name: _spec(name, t, shapes.outputs[name]) for name, t in outputs.items()}
    return Signature(
        name=config.name,
        platform=resolved.platform,
        inputs=tuple(ins.values()),
        outputs=tuple(outs.values()),
        dimensions=shapes.dimensions,
        batching=Batching(merge=reading.merge, reason=reading.reason, max_rows=max_rows),
        decode_types=declaration.decode_types if declaration else (),
        encodes=bool(declaration and declaration.encode),
        encode_type=declaration.encode_type if declaration else "",
        example=_example_body(reading),
        notes=notes,
    )


def _spec(name: str, tensor: torch.Tensor, shape: tuple[int | str, ...]) -> TensorSpec:
    kind = DATATYPE.get(tensor.dtype)
    if kind is None:
        raise ModelLoadError(
            f"output {name!r} is {tensor.dtype}, which no protocol can carry",
            "convert it in forward, such as torch.view_as_real for complex numbers",
        )
    return TensorSpec(name=name, datatype=kind, shape=shape)


def _example_body(reading: Reading) -> bytes | None:
    elements = sum(tensor.numel() for tensor in reading.example.values())
    if elements > EXAMPLE_LIMIT // 2:
        return None
    body = {
        name: _rounded(tensor[0] if reading.has_rows else tensor)
        for name, tensor in reading.example.items()
    }
    text = json.dumps(body, separators=(",", ":")).encode()
    return text if len(text) <= EXAMPLE_LIMIT else None


def _rounded(tensor: torch.Tensor) -> Any:
    if tensor.is_floating_point():
        return _round(tensor.double().tolist())
    return tensor.tolist()


def _round(value: Any) -> Any:
    if isinstance(value, list):
        return [_round(entry) for entry in value]
    return float(f"{value:.5g}")
