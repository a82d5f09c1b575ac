"""Sizes, durations and options that may differ by model."""

import pytest

from torchgate.cli.build import Typed, build
from torchgate.cli.values import PerModel, positive_int, seconds, size, version
from torchgate.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2GiB", 2 * 1024**3),
        ("512MB", 512 * 10**6),
        ("1.5g", 1.5 * 1024**3),
        ("64k", 65536),
        ("100", 100),
        (" 3 MiB ", 3 * 1024**2),
    ],
)
def test_sizes(text, expected):
    assert size("--x", text) == expected


@pytest.mark.parametrize("text", ["", "GiB", "-1", "2 apples", "1e9", "0x10"])
def test_what_is_no_size_is_refused(text):
    with pytest.raises(ConfigError, match="--x"):
        size("--x", text)


@pytest.mark.parametrize(
    ("text", "expected"), [("30", 30), ("500ms", 0.5), ("2m", 120), ("0.5", 0.5)]
)
def test_durations(text, expected):
    assert seconds("--x", text) == pytest.approx(expected)


@pytest.mark.parametrize("text", ["0", "-1", "abc", "", "5 days", "nan", "inf"])
def test_what_is_no_duration_is_refused(text):
    with pytest.raises(ConfigError):
        seconds("--x", text)


def test_a_value_for_all_and_one_for_a_model():
    option = PerModel("--replicas", ["2", "b=5"], ["a", "b"], positive_int)
    assert (option.get("a", 1), option.get("b", 1)) == (2, 5)


def test_without_a_value_the_default_holds():
    assert PerModel("--replicas", [], ["a"], positive_int).get("a", 7) == 7


def test_an_unknown_model_is_named_with_the_nearest():
    with pytest.raises(ConfigError, match="digitz") as caught:
        PerModel("--replicas", ["digitz=2"], ["digits"], positive_int)
    assert "digits" in caught.value.hint


@pytest.mark.parametrize("given", [["1", "2"], ["a=1", "a=2"]])
def test_a_value_given_twice_is_refused(given):
    with pytest.raises(ConfigError, match="twice"):
        PerModel("--replicas", given, ["a"], positive_int)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "a=0"])
def test_counts_are_positive_whole_numbers(text):
    with pytest.raises(ConfigError, match="--replicas"):
        PerModel("--replicas", [text], ["a"], positive_int)


def test_a_file_name_with_an_equals_sign_is_no_model_name():
    option = PerModel("--example", ["dir/x=1.npz"], ["a"], lambda _option, text: text)
    assert option.get("a", "") == "dir/x=1.npz"


@pytest.mark.parametrize("text", ["a/b", "", "..", "a b", "ü", "1" * 65, "%2f"])
def test_a_version_that_no_url_can_hold_is_refused(text: str) -> None:
    """Its routes would answer 404 for ever."""
    with pytest.raises(ConfigError, match="--model-version"):
        PerModel("--model-version", [text], ["a"], version)


@pytest.mark.parametrize("text", ["1", "1.4.0", "2024-05-01", "v2_b"])
def test_a_plain_version_is_taken(text: str) -> None:
    """As typed."""
    assert PerModel("--model-version", [text], ["a"], version).get("a", "1") == text


@pytest.mark.parametrize("text", ["9" * 5000, "1000000001", "²", "1_0", "0", "00", "-1", "1.5"])
def test_what_is_no_number_of_anything_is_refused_in_one_short_line(text):
    with pytest.raises(ConfigError, match="--x") as caught:
        positive_int("--x", text)
    assert len(caught.value.what) < 120


@pytest.mark.parametrize("convert", [seconds, size])
@pytest.mark.parametrize("text", ["9" * 30, "9" * 5000])
def test_what_would_overflow_is_refused(convert, text):
    with pytest.raises(ConfigError, match=r"--x 9+(\.\.\.)?: at most") as caught:
        convert("--x", text)
    assert len(caught.value.what) < 120


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("replicas", "10000", "--replicas 10,000: at most 256"),
        ("replicas", "net=10000", "--replicas net=10,000: at most 256"),
        ("threads", "5000", "--threads 5,000: at most 1,024"),
        ("max_batch", "100000000", "--max-batch 100,000,000: at most 1,000,000"),
    ],
)
def test_absurd_numbers_end_the_start(tmp_path, option, value, words):
    (tmp_path / "model.py").write_text("net = None\n")
    with pytest.raises(ConfigError) as caught:
        build(Typed(targets=[f"net={tmp_path}/model.py:net"], **{option: [value]}))
    assert caught.value.what == words
    assert caught.value.hint
    assert caught.value.exit_code == 2


def test_more_threads_than_cpus_are_warned_of_at_the_start(tmp_path):
    (tmp_path / "model.py").write_text("net = None\n")
    built = build(Typed(targets=[f"{tmp_path}/model.py:net"], threads=["1000"], device=["cpu"]))
    assert any(
        text.startswith("net: warning: 1,000 threads share")
        for text in built.introduction.decisions
    )
