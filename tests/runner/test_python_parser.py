"""Python's own parser in several threads."""

import gc
import threading

from tui_train.runner.system.python_parser import parse_literal, parse_module

SOURCE = "x = [(1, 2), {'a': f(3)}]\n" * 500


class ParsesWhenCollected:
    """Garbage in whose place another thread parses."""

    done = False

    def __init__(self):
        self.me = self

    def __del__(self):
        other = threading.Thread(target=lambda: parse_literal("[[[1]]]"), daemon=True)
        other.start()
        other.join(0.5)
        ParsesWhenCollected.done = True


def test_another_thread_may_parse_in_the_middle_of_it():
    ParsesWhenCollected.done = False
    gc.collect()
    ParsesWhenCollected()
    assert len(parse_module(SOURCE).body) == 500
    gc.collect()
    assert ParsesWhenCollected.done
