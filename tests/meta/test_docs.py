"""The documentation says what is true: pages made from code are current, links lead somewhere."""

import re
import runpy
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import torchgate
from torchgate.errors import Cause
from torchgate.gateway.handlers.predict import ENCODINGS
from torchgate.schema.problem import STATUS

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), *ROOT.glob("*.md")])


def _ids(paths):
    return [str(path.relative_to(ROOT)) for path in paths]


@pytest.mark.parametrize("script", ["generate_pains.py", "generate_reference.py"])
def test_a_page_made_from_code_is_current(script):
    result = subprocess.run(
        [sys.executable, str(ROOT / "scripts" / script), "--check"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert result.returncode == 0, result.stderr


def test_an_unknown_pain_is_refused(tmp_path):
    """A mark with a code that nobody knows, or that has no mechanism, can't be published."""
    module = runpy.run_path(str(ROOT / "scripts" / "generate_pains.py"))
    tests = tmp_path / "tests"
    tests.mkdir()
    (tests / "test_x.py").write_text(
        "import pytest\n\n@pytest.mark.pain('N99', 'N01')\ndef test_y():\n    pass\n"
    )
    found = module["collect"](tests)
    assert found == {"N99": ["tests/test_x.py::test_y"], "N01": ["tests/test_x.py::test_y"]}
    with pytest.raises(SystemExit, match="N99"):
        module["render"]({"N01": {"pain": "p", "mechanism": "m"}}, found)
    with pytest.raises(SystemExit, match="no mechanism"):
        module["render"]({"N01": {"pain": "p"}, "N99": {"pain": "p", "mechanism": "m"}}, found)


def test_every_dependency_has_a_line_of_reason():
    with (ROOT / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    page = (DOCS / "explanation" / "decisions.md").read_text()
    names = [re.split(r"[\[<>=~! ]", requirement)[0] for requirement in wanted]
    assert [name for name in names if f"- **{name}**: " not in page] == []


def test_every_cause_is_explained_with_its_status():
    page = (DOCS / "reference" / "causes.md").read_text()
    rows = dict(re.findall(r"^\| `([a-z-]+)` \| (\d{3}) \| \S", page, re.MULTILINE))
    assert rows == {str(cause): str(STATUS[cause]) for cause in Cause}


def test_every_public_name_is_documented():
    page = (DOCS / "reference" / "python.md").read_text()
    documented = re.findall(r"^## `torchgate\.(\w+)", page, re.MULTILINE)
    assert sorted(documented) == sorted(torchgate.__all__)


@pytest.mark.parametrize("page", PAGES, ids=_ids(PAGES))
def test_a_link_to_a_file_leads_somewhere(page):
    text = re.sub(r"```.*?```", "", page.read_text(), flags=re.DOTALL)
    targets = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text)
    local = [target for target in targets if not re.match(r"[a-z]+:", target)]
    assert [target for target in local if not (page.parent / target).exists()] == []


def test_every_page_can_be_reached_from_the_index():
    index = (DOCS / "index.md").read_text()
    pages = [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]
    assert [path for path in pages if path != "index.md" and f"({path})" not in index] == []


def test_the_readme_has_two_commands_and_they_name_real_things():
    """One sets up and runs the demo, one sets up and runs the tests; the CI runs the second one."""
    readme = (ROOT / "README.md").read_text()
    demo, test = re.findall(
        r"^## Two commands\n.*?```sh\n(.*?)\n```.*?```sh\n(.*?)\n```",
        readme,
        re.DOTALL | re.MULTILINE,
    )[0]
    assert shlex.split(demo)[-2:] == [".venv/bin/torchgate", "demo"]
    assert (ROOT / test).is_file()
    assert (ROOT / ".ci" / "run").read_text().rstrip().endswith(f"exec {test}")


def test_news_fragments_have_a_known_type():
    with (ROOT / "pyproject.toml").open("rb") as file:
        types = {row["directory"] for row in tomllib.load(file)["tool"]["towncrier"]["type"]}
    fragments = [path for path in (ROOT / "news").iterdir() if path.name != "README.md"]
    assert [path.name for path in fragments if path.suffixes[0].strip(".") not in types] == []


def test_a_pain_needs_a_test_on_the_running_product():
    """A mark on a unit test alone claims nothing."""
    render = runpy.run_path(str(ROOT / "scripts" / "generate_pains.py"))["render"]
    known = {"N01": {"pain": "p", "mechanism": "m"}}
    assert "| N01 |" not in render(known, {"N01": ["tests/unit/x/test_y.py::test_z"]})
    assert "| N01 |" in render(known, {"N01": ["tests/process/test_y.py::test_z"]})


@pytest.mark.parametrize("page", ["causes.md", "http-api.md", "http.md", "routes.md"])
def test_the_codings_of_request_bodies_are_those_that_are_taken(page):
    """Wherever one is named that bodies may have, all are."""
    text = (DOCS / "reference" / page).read_text()
    lines = [line for line in text.splitlines() if "deflate" in line]
    assert lines, page
    for coding in set(ENCODINGS.values()):
        assert all(coding in line for line in lines), coding
