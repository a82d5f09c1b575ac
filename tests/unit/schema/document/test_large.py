"""Tens of thousands of routes are read in a moment."""

import time

from tests.unit.schema.document.reading import read

ROUTES = 10_000
CPU_S = 4.0  # an eighth of that on an idle machine


def test_ten_thousand_routes_are_read_quickly_and_share_what_is_equal(tmp_path):
    text = '[listeners.web]\nheaders.response.set = { a = "1" }\n'
    text += "".join(f'[pools.p{number}]\nendpoints = ["10.0.0.1:80"]\n' for number in range(100))
    text += "".join(
        f'[routes.r{number}]\nhost = "h{number % 50}.example"\npath = "/{number}/*"\n'
        f'proxy = "p{number % 100}"\n'
        for number in range(ROUTES)
    )
    before = time.process_time()
    front = read(tmp_path, text).front
    assert time.process_time() - before < CPU_S
    assert len(front.routes) == ROUTES
    assert len(front.edits) == 1
