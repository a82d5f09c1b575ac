"""The stall watch names the code that held the loop."""

import threading
import time

from torchgate.clock import FakeClock, SystemClock
from torchgate.observe.stall import LoopLag, StallWatch


def hold_the_loop_for(seconds):
    time.sleep(seconds)


def test_a_stall_is_counted_once_and_the_code_that_held_the_loop_is_named():
    counted, reports = [], []
    watch = StallWatch(SystemClock(), 0.01, lambda: counted.append(1), reports.append)
    watch.start()
    hold_the_loop_for(0.4)
    watch.beat()
    end = time.monotonic() + 5
    while len(reports) < 2 and time.monotonic() < end:
        watch.beat()
        time.sleep(0.01)
    watch.close()
    assert len(counted) == 1
    assert "hold_the_loop_for" in reports[0].splitlines()[0]
    assert __file__ in reports[0]
    assert "moves again" in reports[1]


def test_a_process_without_cpu_is_not_blamed_on_code():
    counted, reports = [], []
    watch = StallWatch(SystemClock(), 0.01, lambda: counted.append(1), reports.append)
    code = compile("import time\ntime.sleep(0.4)", "/lib/asyncio/runners.py", "exec")
    watch.start()
    exec(code)
    watch.close()
    assert len(counted) == 1
    assert "does not get the CPU" in reports[0]


def test_a_loop_that_ticks_is_left_alone():
    reports = []
    watch = StallWatch(SystemClock(), 0.01, lambda: reports.append("counted"), reports.append)
    watch.start()
    for _ in range(20):
        watch.beat()
        time.sleep(0.01)
    watch.close()
    assert reports == []
    assert not any(thread.name == "stall-watch" for thread in threading.enumerate())


def test_the_largest_lateness_is_forgotten_after_a_minute():
    clock = FakeClock()
    lag = LoopLag()
    lag.sample(0.5, clock.now_ns())
    clock.advance(31)
    lag.sample(0.1, clock.now_ns())
    assert (lag.last_s, lag.max_s) == (0.1, 0.5)
    clock.advance(31)
    lag.sample(0.2, clock.now_ns())
    assert lag.max_s == 0.2
