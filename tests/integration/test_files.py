"""Static files over real sockets."""

import os

import pytest

from tests.integration.file_stage import FileStage


@pytest.fixture
def root(tmp_path):
    made = tmp_path / "www"
    made.mkdir()
    (made / "a.txt").write_bytes(b"0123456789")
    (made / "big.bin").write_bytes(os.urandom(3 * 1024 * 1024))
    return made


def test_a_small_and_a_large_file(tmp_path, root):
    with FileStage(tmp_path, root) as stage:
        answer = stage.get("/a.txt")
        print(answer.status, answer.fields, answer.body)
        assert answer.status == 200
        for _ in range(3):
            answer = stage.get("/big.bin")
            assert answer.body == (root / "big.bin").read_bytes()
        print(stage.get("/nothing").body)
