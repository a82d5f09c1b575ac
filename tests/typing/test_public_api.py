"""The public API as a typed program uses it: mypy --strict reads this file, pytest runs it."""

from dataclasses import dataclass

import torchgate


def _decode(body: bytes, content_type: str) -> list[float]:
    return [float(part) for part in body.split()] if content_type == "text/plain" else []


def _encode(outputs: dict[str, object]) -> str:
    return ", ".join(outputs)


@torchgate.model
class Bare:
    """Nothing declared: the class keeps its type."""


@torchgate.model(
    inputs=["x"],
    outputs=["score"],
    labels={"score": ["no", "yes"]},
    ranges=(0, None),
    shapes={"x": ("batch", 64)},
    dtypes="FP32",
    decode=_decode,
    decode_types="text/plain",
    encode=_encode,
    encode_type="text/plain",
    example_inputs=lambda: None,
)
@dataclass
class Declared:
    """Everything declared: the class keeps its type and its arguments."""

    width: int


def test_a_declared_class_keeps_its_type() -> None:
    bare: Bare = Bare()
    declared: Declared = Declared(width=3)
    width: int = declared.width
    assert isinstance(bare, Bare)
    assert width == 3
