"""Load a model: TARGET, weights, example, probes, and the signature they give.

Reads straight down: `load` calls `torchgate.worker.target`, `torchgate.worker.weights`,
`torchgate.worker.example`, `torchgate.worker.probe`, `torchgate.worker.lengths` and
`torchgate.worker.warm`, in that order. Nothing here is on the path of a request except
`LoadedModel.run`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import msgspec
import torch
from torch.nn.parameter import is_lazy

from torchgate.declare import ONLY, Declaration
from torchgate.errors import ConfigError, ModelLoadError
from torchgate.schema.config import ModelConfig
from torchgate.schema.signature import Batching, Signature
from torchgate.schema.target import Target, parse_target
from torchgate.schema.words import counted
from torchgate.worker.call import Call, bind
from torchgate.worker.contract import Findings, declared_dtypes, signature_of
from torchgate.worker.example import find_example, input_names
from torchgate.worker.kept import KeptState
from torchgate.worker.lengths import find_shapes
from torchgate.worker.primitives import bound_primitives
from torchgate.worker.probe import Reading, read
from torchgate.worker.program import Program
from torchgate.worker.ranges import index_ranges
from torchgate.worker.sample import with_example_answer
from torchgate.worker.shapes import rows_of_program, shapes_of_program
from torchgate.worker.target import Resolved, resolve
from torchgate.worker.trace import message_of
from torchgate.worker.warm import Measured, measure
from torchgate.worker.weights import load_weights

Progress = Callable[[str, str], None]
"""``progress(phase, detail)``; phases are ``import``, ``load``, ``weights``, ``probe``, ``warm``."""

DEFAULT_MAX_ROWS = 256
"""Most rows in one call when the user names no number and the rows are small."""

BATCH_BYTES = 64 * 1024 * 1024
"""Inputs and outputs of one call stay below this unless the user says otherwise."""

LEAST_MAX_ROWS = 8
"""Rows allowed in one call however large they are."""


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
        warning: What people are to be told at the start, or empty.
    """

    signature: Signature
    device: torch.device
    declaration: Declaration | None
    example: dict[str, torch.Tensor]
    batch_us: dict[int, float]
    call: Call
    warning: str = ""

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
    resolved = resolve(_target(config.target), work_dir, device)
    notes = list(resolved.notes)
    if config.weights:
        progress("weights", config.weights)
        notes += _weights(resolved, config.weights, work_dir)
    progress("load", str(device))
    _place(resolved, device)
    bound_primitives(resolved.module)
    progress("probe", "")
    kept = KeptState(resolved.module)
    call, reading, found = _probe(config, resolved, work_dir, device)
    found = dataclasses.replace(found, notes=(*notes, *found.notes))
    signature = signature_of(found, resolved.declaration)
    known = (reading.example, reading.outputs)
    signature = with_example_answer(signature, resolved.declaration, call, device, known)
    progress("warm", "")
    measured = measure(call, reading, signature.batching.max_rows, _waiter(device))
    if not reading.merge:
        kept.restore()
    signature, warning = _within_reach(signature, measured)
    return LoadedModel(
        signature=signature,
        device=device,
        declaration=resolved.declaration,
        example=reading.example,
        batch_us=measured.batch_us,
        call=call,
        warning=warning,
    )


def _within_reach(signature: Signature, measured: Measured) -> tuple[Signature, str]:
    """Return the signature with no more rows a call than were seen to work, and what to tell of the others."""
    failed = measured.failed_rows
    if not failed:
        return signature, ""
    largest = max(measured.batch_us)
    batching = msgspec.structs.replace(signature.batching, max_rows=largest)
    warning = (
        f"a call with {counted(failed, 'row')} failed ({measured.failure}); served with at most "
        f"{counted(largest, 'row')} a call, which worked"
    )
    return msgspec.structs.replace(signature, batching=batching), warning


def _target(text: str) -> Target:
    try:
        return parse_target(text)
    except ConfigError as error:
        raise ModelLoadError(error.what, error.hint) from None


def _weights(resolved: Resolved, file: str, work_dir: str) -> tuple[str, ...]:
    if resolved.program is not None:
        raise ModelLoadError(
            f"--weights {file}: a saved program carries its own weights",
            "serve the code with --weights, or export the program again with the new weights",
        )
    return load_weights(resolved.module, file, work_dir)


def _probe(
    config: ModelConfig, resolved: Resolved, work_dir: str, device: torch.device
) -> tuple[Call, Reading, Findings]:
    names = input_names(resolved)
    declaration = resolved.declaration
    dtypes = declared_dtypes(declaration, names)
    example = find_example(resolved, names, dtypes, config.example, work_dir)
    # What forward takes as *args has no name of its own; the example gave it one.
    names += tuple(name for name in example.tensors if name not in names)
    call = _call(resolved, names, tuple(example.tensors))
    reading = read(call, example, device, _waiter(device))
    outputs = reading.outputs
    program = resolved.program
    if program is not None and program.inputs is not None:
        shapes = shapes_of_program(program, names, outputs, has_rows=reading.has_rows)
    else:
        declared = names if declaration and ONLY in declaration.shapes else ()
        fixed = (*declared, *(declaration.shapes if declaration else ()))
        shapes = find_shapes(call, reading.example, outputs, has_rows=reading.has_rows, fixed=fixed)
    ranges = reading.ranges
    if ranges is None:
        ranges = index_ranges(call, reading.example)
    max_rows, notes = _max_rows(config.max_batch, reading, outputs, program)
    return (
        call,
        reading,
        Findings(
            name=config.name,
            platform=resolved.platform,
            example=reading.example,
            outputs=outputs,
            has_rows=reading.has_rows,
            shapes=shapes,
            ranges=ranges,
            batching=Batching(merge=reading.merge, reason=reading.reason, max_rows=max_rows),
            notes=(*reading.notes, *notes),
        ),
    )


def _call(resolved: Resolved, names: tuple[str, ...], given: tuple[str, ...]) -> Call:
    outputs = resolved.declaration.outputs if resolved.declaration else ()
    program = resolved.program
    if program is not None and program.names:
        by_position = len(names) - program.keywords
        missing = [name for name in names if name not in given]
        if missing:
            raise ModelLoadError(
                f"the example has no value for {', '.join(missing)}; the program takes {', '.join(names)}"
            )
        keywords = dict(zip(names[by_position:], program.names[by_position:], strict=True))
        return Call(resolved.module, names[:by_position], keywords, outputs)
    positional, keywords = bind(resolved.module, names, given)
    return Call(resolved.module, positional, keywords, outputs)


def _device(name: str) -> torch.device:
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ModelLoadError(f"there is no device {name!r}: {message_of(error)}") from None
    if device.type == "cuda":
        count = torch.cuda.device_count() if torch.cuda.is_available() else 0
        if (device.index or 0) >= count:
            raise ModelLoadError(
                f"device {name!r} isn't there: PyTorch {torch.__version__} sees {counted(count, 'GPU')}",
                "use --device cpu, or install the CUDA build of PyTorch and its driver",
            )
        torch.cuda.set_device(device)
    return device


def _place(resolved: Resolved, device: torch.device) -> None:
    module = resolved.module
    for parameter in module.parameters():
        if not is_lazy(parameter):  # those get their shape, and no gradient, from the first call
            parameter.requires_grad_(False)
    empty = next((n for n, p in module.named_parameters() if p.is_meta), "")
    if empty:
        raise ModelLoadError(
            f"parameter {empty!r} has no values: it is on the meta device",
            "give the weights with --weights, after module.to_empty(device='cpu') in the code",
        )
    if resolved.platform == "pytorch_export":
        return  # torch.export.load was told the device; an exported graph can't be moved later
    try:
        module.to(device)
    except (RuntimeError, NotImplementedError) as error:
        raise ModelLoadError(f"the model can't be put on {device}: {message_of(error)}") from None


def _waiter(device: torch.device) -> Callable[[], None]:
    if device.type == "cuda":
        return lambda: torch.cuda.synchronize(device)
    return lambda: None


def _max_rows(
    asked: int, reading: Reading, outputs: Mapping[str, torch.Tensor], program: Program | None
) -> tuple[int, tuple[str, ...]]:
    """Return the most rows of one call, and notes about why it isn't what was asked for."""
    if not reading.has_rows:
        return 1, ()
    if reading.only_rows:
        return reading.only_rows, ()
    largest = rows_of_program(program)[1] if program is not None else 0
    if asked:
        if largest and asked > largest:
            return largest, (f"the program takes at most {counted(largest, 'row')}, not {asked}",)
        return asked, ()
    tensors = (*reading.example.values(), *outputs.values())
    row_bytes = sum(tensor.numel() * tensor.element_size() for tensor in tensors)
    fitting = max(LEAST_MAX_ROWS, BATCH_BYTES // max(row_bytes, 1))
    decided = min(DEFAULT_MAX_ROWS, 1 << (fitting.bit_length() - 1))
    return min(decided, largest) if largest else decided, ()
