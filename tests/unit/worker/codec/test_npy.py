"""``application/x-npy``: one tensor in numpy's format, read without evaluating or unpickling anything."""

import io

import numpy as np
import pytest

from tests.codec_models import answer, codec, plain, refusal, tensor, told
from torchgate.errors import Cause

X = tensor("x", "FP32", "batch", 3)
NPY = "application/x-npy"


def npy(array, version=None, **kwargs) -> bytes:
    """Return an array as an ``.npy`` file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), version, **kwargs)
    return file.getvalue()


def header(text: str, data: bytes = b"") -> bytes:
    """Return an ``.npy`` file with this header text."""
    return b"\x93NUMPY\x01\x00" + len(text).to_bytes(2, "little") + text.encode() + data


def send(model, body, **meta):
    """Decode an npy request."""
    return plain(model, body, content_type=NPY, **meta)


@pytest.mark.parametrize("version", [(1, 0), (2, 0)])
def test_rows_and_one_row(version):
    """An array of the input's rank holds rows, of one less one row; both are views of the body."""
    rows = send(codec(X), npy(np.arange(6, dtype=np.float32).reshape(2, 3), version))
    assert (rows.rows, rows.single) == (2, False)
    one = send(codec(X), npy(np.arange(3, dtype=np.float32), version))
    assert (one.rows, one.single, one.arrays["x"].tolist()) == (1, True, [[0, 1, 2]])
    assert not one.arrays["x"].flags.writeable


def test_fortran_order_and_big_endian():
    """Column-major and big-endian arrays are converted, which loses nothing."""
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for given in (np.asfortranarray(array), array.astype(">f4")):
        decoded = send(codec(X), npy(given))
        assert (decoded.arrays["x"] == array).all()
        assert decoded.arrays["x"].flags.c_contiguous


def test_conversions():
    """Lossless types are converted; float64 for float32 is refused with the usual hint."""
    assert send(codec(X), npy(np.array([1, 2, 3], np.int16))).arrays["x"].dtype == np.float32
    error = refusal(lambda: send(codec(X), npy(np.array([1.0, 2, 3]))))
    assert (error.cause, error.got) == (Cause.BAD_TENSOR, "FP64 [3]")
    assert "float32" in error.hint
    bits = send(codec(tensor("x", "BF16", "batch", 3)), npy(np.array([1, 2, 3], np.uint8)))
    assert bits.arrays["x"].tolist() == [[0x3F80, 0x4000, 0x4040]]


GOOD = "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }"


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\x93NUMPY",
        b"\x93NUMPY\x01\x00",
        b"not an npy file at all",
        b"\x93NUMPY\x03\x00\x10\x00\x00\x00" + b" " * 16,
        b"\x93NUMPY\x02\x00\xff\xff\xff\xff",
        b"\x93NUMPY\x01\x00\xff\xff{",
        header(GOOD, b"\0" * 11),
        header(GOOD, b"\0" * 13),
        header("{'descr': '|O', 'fortran_order': False, 'shape': (3,), }", b"\x80\x04N." * 6),
        header("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (3,), }", b"\0" * 12),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (-3,), }", b"\0" * 12),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (9999999999999999999, 9), }"),
        header("{'descr': '<f4', 'fortran_order': False, 'fortran_order': True, }", b"\0" * 12),
        header("{'descr': '<f4', 'fortran_order': 1, 'shape': (3,), }", b"\0" * 12),
        header("__import__('os').abort()"),
        header("{" * 4000),
        # Digits that a careless pattern could cut into pieces in exponentially many ways.
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1" * 400 + "x), }"),
        header("{'descr': '<f4', 'fortran_order': False, 'shape': (" + "1," * 400 + "x), }"),
        header("[" * 4000),
        header("{'shape':(" + "1," * 1990 + ")}"),
        npy(np.array(["a", "b", "c"])),
        npy(np.array([1j, 2j, 3j])),
        npy(np.array([1, 2, 3], "M8[s]")),
        npy(np.zeros((0, 3), np.float32)),
        npy(np.zeros((2, 4), np.float32)),
        npy(np.float32(1)),
    ],
)
def test_bad_files(body):
    """Whatever is no plain array of the right shape is refused; objects are never unpickled."""
    error = refusal(lambda: send(codec(X), body))
    assert error.cause in {Cause.BAD_REQUEST, Cause.BAD_TENSOR, Cause.EMPTY_BATCH}
    assert len(told(error)) < 500


def test_only_with_one_input():
    """A model with several inputs does not list npy among what it takes."""
    model = codec(X, tensor("y", "FP32", "batch"))
    error = refusal(lambda: send(model, npy(np.zeros(3, np.float32))))
    assert error.cause is Cause.UNSUPPORTED_MEDIA_TYPE
    assert NPY not in error.detail.partition(", not")[0]


@pytest.mark.parametrize("shape", [(1, 3), (2, 3), (1, 0), (2, 2, 2)])
def test_answer_is_readable_by_numpy(shape):
    """An answer asked for as npy loads with numpy, without the row dimension for one row."""
    model = codec(X, outputs=(tensor("output0", "FP32", "batch", "n"),))
    array = np.arange(int(np.prod(shape)), dtype=np.float32).reshape(shape)
    body = npy(np.zeros((shape[0], 3), np.float32))
    head, made = answer(model, send(model, body, accept=NPY), {"output0": array})
    assert head.content_type == NPY
    assert (np.load(io.BytesIO(made), allow_pickle=False) == array).all()
    one = plain(model, [1, 2, 3], accept=NPY)
    back = np.load(io.BytesIO(answer(model, one, {"output0": array})[1]))
    assert back.shape == shape[1:]
    assert head.status == 200


def test_answer_of_bf16_and_scalars():
    """BF16 comes as float32, a scalar per row as a zero-dimensional array."""
    model = codec(X, outputs=(tensor("output0", "BF16", "batch"),))
    one = plain(model, [1, 2, 3], accept=NPY)
    back = np.load(io.BytesIO(answer(model, one, {"output0": np.array([0x3F80], np.uint16)})[1]))
    assert (back.dtype, back.shape, back.item()) == (np.float32, (), 1.0)
