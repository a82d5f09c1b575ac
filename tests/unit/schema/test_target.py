"""What a TARGET means, judged without importing it."""

import pytest

from torchgate.errors import ConfigError
from torchgate.schema.target import (
    Target,
    TargetKind,
    check_name,
    check_target,
    nearest,
    parse_target,
    parse_targets,
    source_names,
)


@pytest.mark.parametrize(
    ("text", "kind", "source", "attribute", "name"),
    [
        ("model.py:net", TargetKind.FILE, "model.py", "net", "net"),
        ("a/b c/model.py:zoo.Net", TargetKind.FILE, "a/b c/model.py", "zoo.Net", "Net"),
        ("pack.age:build", TargetKind.MODULE, "pack.age", "build", "build"),
        ("/x/résumé net.pt2", TargetKind.EXPORTED, "/x/résumé net.pt2", "", "r-sum-net"),
        ("old.PT", TargetKind.TORCHSCRIPT, "old.PT", "", "old"),
        ("cat=model.py:net", TargetKind.FILE, "model.py", "net", "cat"),
        ("v1.2-b=x.pt2", TargetKind.EXPORTED, "x.pt2", "", "v1.2-b"),
        ("./a=b/model.py:net", TargetKind.FILE, "./a=b/model.py", "net", "net"),
        ("model.py:_Net", TargetKind.FILE, "model.py", "_Net", "Net"),
    ],
)
def test_forms(text, kind, source, attribute, name):
    expected = Target(kind=kind, source=source, attribute=attribute, name=name)
    assert parse_target(text) == expected


@pytest.mark.parametrize(
    ("text", "words", "hint"),
    [
        ("", "is empty", "model.py:net"),
        ("a=", "is empty", "model.py:net"),
        ("=m.py:n", "can't be a served name", "try model"),
        ("my model=m.py:n", "can't be a served name", "try my-model"),
        ("é=m.py:n", "can't be a served name", ""),
        ("a" * 129 + "=m.py:n", "longer than 128", ""),
        ("m.py:", "no Python name", ""),
        ("m.py:a b", "no Python name", ""),
        ("m.pt2:net", "no names in it", "just m.pt2"),
        ("w.safetensors", "weights, not a model", "--weights w.safetensors"),
        ("w.pth", "weights, not a model", "--weights w.pth"),
        ("net.onnx", "an ONNX file", "a TARGET is"),
        ("package.module", "which name", "package.module:net"),
        ("what/is this", "not understood", "a TARGET is"),
    ],
)
def test_mistakes_are_named_and_mended(text, words, hint):
    with pytest.raises(ConfigError) as caught:
        parse_target(text)
    assert words in caught.value.what
    assert hint in caught.value.hint


def test_a_file_without_a_name_lists_what_it_defines(tmp_path):
    file = tmp_path / "model.py"
    file.write_text("import x\nclass Net: pass\ndef build(): pass\nnet = Net()\n_hidden = 1\n")
    assert source_names(str(file)) == ("Net", "build", "net")
    with pytest.raises(ConfigError, match="it defines Net, build, net") as caught:
        parse_target(str(file))
    assert caught.value.hint.endswith(f"{file}:Net")


def test_source_that_does_not_parse_defines_nothing(tmp_path):
    file = tmp_path / "bad.py"
    file.write_text("def (")
    assert source_names(str(file)) == ()


def test_two_models_of_one_name():
    with pytest.raises(ConfigError, match="two models would be served as 'net'") as caught:
        parse_targets(["a.py:net", "b.py:net"])
    assert "=b.py:net" in caught.value.hint
    assert [t.name for t in parse_targets(["a.py:net", "other=b.py:net"])] == ["net", "other"]


def test_a_missing_file_names_the_near_one(tmp_path):
    (tmp_path / "model.py").write_text("net = 1")
    with pytest.raises(ConfigError, match="doesn't exist") as caught:
        check_target(parse_target("modle.py:net"), str(tmp_path))
    assert caught.value.hint == "did you mean model.py?"
    with pytest.raises(ConfigError) as caught:
        check_target(parse_target("nowhere/model.py:net"), str(tmp_path))
    assert "no directory nowhere" in caught.value.hint


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.pt2", b"", "is empty"),
        ("a.pt2", b"\x00" * 40, "no torch.export program"),
        ("a.pt", b"\x80\x02}", "old file of torch.save"),
        ("a.pt", b"<html>", "no TorchScript file"),
    ],
)
def test_a_file_that_is_not_what_its_ending_says(tmp_path, name, content, words):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError, match=words):
        check_target(parse_target(name), str(tmp_path))


def test_a_directory_is_no_model(tmp_path):
    (tmp_path / "m.pt2").mkdir()
    with pytest.raises(ConfigError, match="is a directory"):
        check_target(parse_target("m.pt2"), str(tmp_path))


def test_nearest_ignores_case_and_gives_up_on_strangers():
    assert nearest("NET", ["net", "build"]) == "net"
    assert nearest("xyz", ["net", "build"]) == ""


def test_a_name_whose_route_is_taken_is_refused() -> None:
    """``/v2/models/stats`` is a route already: such a model could not be asked for its metadata."""
    with pytest.raises(ConfigError, match="stats"):
        check_name("stats")
