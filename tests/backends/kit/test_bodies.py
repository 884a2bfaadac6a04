"""Bodies of requests, filled in."""

from __future__ import annotations

from typing import Any

import pytest

from chalicelib.backends.kit.bodies import filled


@pytest.mark.parametrize(
    ("template", "values", "body"),
    [
        ("{a}", {"a": 7}, 7),  # whole, and of its type
        ("{a}", {"a": ["{b}"]}, ["{b}"]),  # and never filled in itself: a script may have braces
        ("a {b c}: {d}", {"b c": "{d}", "d": 1}, "a {d}: 1"),
        ("zones/{zone}", {"zone": None}, None),
        ({"a": "{a}", "b": "{b}", "c": True, "d": 0}, {"a": False, "b": None}, {"a": False, "c": True, "d": 0}),
        ({"a": {"b": {"c": "{c}"}}, "d": "{d}"}, {"c": None, "d": ""}, {"d": ""}),
        ({"a": ["{b}", {"c": "{b}"}], "d": 1}, {"b": None}, {"d": 1}),
        ({"a": {}, "b": []}, {}, {"a": {}, "b": []}),  # what the template has empty stays
        ({"a": "{a}"}, {"a": {}}, {"a": {}}),
        ({"{a}": 1, "to {b}": 2}, {"a": "x", "b": "y"}, {"x": 1, "to y": 2}),  # in keys, too
        ({"{a}": 1, "b": 2}, {"a": None}, {"b": 2}),
    ],
)
def test_what_has_no_value_is_left_out_with_what_has_nothing_else(template: Any, values: Any, body: Any) -> None:
    assert filled(template, values) == body


def test_a_name_without_a_value_is_a_mistake() -> None:
    with pytest.raises(KeyError, match="zone"):
        filled({"a": ["zones/{zone}"]}, {"region": "eu"})
