"""Names with notes, colours and groups: read by every command, changed in their place."""

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from panther.errors import InputError
from panther.explain.names import (
    Naming,
    as_names,
    as_namings,
    changed_text,
    colours,
    entry,
    parse_namings,
    plain,
    plain_field,
    titles,
)
from panther.explain.palette import colour

FULL = Naming("tumour", "crushed, mostly", "#AABBCC", "stroma")
WRITTEN = {
    "flow.yaml": 'C2: {name: tumour, note: "crushed, mostly", colour: "#aabbcc", group: stroma}\nC0: fat\n',
    "block.yaml": "C2:\n  name: tumour\n  note: crushed, mostly\n  color: aabbcc\n  group: stroma\n  seen: [a, b]\nC0: fat\n",
    "n.json": '{"C2": {"name": "tumour", "note": "crushed, mostly", "colour": "#ABC", "group": "stroma"}, "C0": "fat"}',
}


@pytest.mark.parametrize("name", WRITTEN)
def test_names_may_have_notes_colours_and_groups(tmp_path, name):
    (tmp_path / name).write_text(WRITTEN[name])
    assert as_namings(tmp_path / name, 4) == {2: FULL, 0: Naming("fat")}
    assert as_names(tmp_path / name, 4) == {2: "tumour", 0: "fat"}


@pytest.mark.parametrize("text", ["C2: tumour, solid\nC0: no\n3:\n", '{"c2": "tumour, solid", "0": "no"}'])
def test_names_may_hold_commas_and_words_of_yaml(text):
    assert parse_namings(Path("n.yaml"), text, 4) == {2: Naming("tumour, solid"), 0: Naming("no")}
    assert as_names({1: "fat", 2: FULL}, 3) == {1: "fat", 2: "tumour"}


@pytest.mark.parametrize(
    ("text", "culprit"),
    [
        ("C9: tumour", "'C9'"),
        ("tumour: C2", "'tumour'"),
        ("C1: a\nc1: b", "C1.*twice"),
        ("- a\n- b", "no names"),
        ("C1: [a, b]", "is not text"),
        ("C1: 'a", "YAML"),
        ("C1: {name: [a]}", "C1.*is not text"),
        ("C1: {colour: blue}", "C1: 'blue' is no colour"),
        ("C1: {colour: '#abc', color: '#abd'}", "has its colour twice"),
        ("? [a]\n: b", "is not text"),
        ("C1: " + "[" * 5000, "YAML"),
        ("prototype,name\nC1,a\n", r"n\.yaml"),
    ],
)
def test_files_that_make_no_sense_are_refused(text, culprit):
    with pytest.raises(InputError, match=culprit):
        parse_namings(Path("n.yaml"), text, 4)


def test_a_group_has_one_colour():
    namings = {1: Naming(group="stroma"), 2: Naming(group="fat"), 3: Naming(colour="#000000", group="stroma"), 4: Naming(group="fat")}  # fmt: skip
    assert colours(namings, 6) == [colour(0), "#000000", colour(2), "#000000", colour(2), colour(5)]
    assert titles({1: Naming("loose", group="stroma"), 2: Naming(group="fat")}, 3) == ["C0", "C1 loose (stroma)", "C2 (fat)"]  # fmt: skip


COMMENTED = """# mine
C0: stroma   # loose
C1:
  name: tumour # hm
  note: >
    long text
    here
  seen_by: {who: me}
# the last one
C3:
"""


def test_what_is_not_changed_stays_as_it_was_written():
    path, text = Path("n.yaml"), "# mine\nC0: stroma   # loose\nC3:\n# the last one\n"
    text = changed_text(path, text, 0, {"group": "a, b"}, 5)
    text = changed_text(path, text, 3, {"name": "fat"}, 5)
    text = changed_text(path, text, 4, {"name": "no"}, 5)
    assert text == '# mine\nC0: {name: stroma, group: "a, b"}   # loose\nC3: fat\n# the last one\nC4: no\n'


@pytest.mark.parametrize(
    "text",
    [
        *("C1: &a x\nC2: *a\n", "C0: a\n...\n", "C9: a\n", "C1: [a]", "\x00", "C1: 'a", '{"C0": "a"}'),
        COMMENTED,  # an entry of several lines
        "C1: {name: b, seen: x}",  # a field of others
    ],
)
def test_a_file_that_would_be_harmed_or_cannot_be_read_is_refused(text):
    with pytest.raises(InputError, match=r"n\.yaml"):
        changed_text(Path("n.yaml"), text, 1, {"name": "new"}, 5)


TEXTS = st.text(max_size=30) | st.sampled_from(
    ["<script>alert(1)</script>", "a: b # c", "- x", "{}", "'", '"', "null", "=1+1", "\ufeffx", "*a", "|", "\u2028", "a\tb\r\nc", "a\n\nb", "\ud800x"]
)  # fmt: skip
CHANGES = st.fixed_dictionaries(
    {}, optional={"name": TEXTS, "note": TEXTS, "group": TEXTS, "colour": st.sampled_from(["", "#00FF00"])}
)


@settings(max_examples=60, deadline=None)
@given(
    text=st.sampled_from(["", "C0: a\n", COMMENTED, "{C0: a, C2: {name: b}}", "C2: {name: b, x: [1]}"]),
    steps=st.lists(st.tuples(st.integers(0, 4), CHANGES), max_size=5),
)
def test_whatever_is_written_is_read_again(text, steps):
    path = Path("n.yaml")
    wanted = {c: vars(one).copy() for c, one in parse_namings(path, text, 5).items()}
    for prototype, raw in steps:
        changes = {field: plain_field(field, value) for field, value in raw.items()}
        try:
            text = changed_text(path, text, prototype, changes, 5)
        except InputError:
            continue  # it is to be edited by hand
        text.encode("utf-8")
        wanted[prototype] = {**vars(Naming()), **wanted.get(prototype, {}), **changes}
        named = {c: one for c, one in wanted.items() if any(one.values())}
        assert {c: vars(one) for c, one in parse_namings(path, text, 5).items()} == named


def test_a_note_keeps_its_lines_and_everything_else_is_one():
    text = "\n crushed,\tmostly \r\n\r\n- ask K.: why?\x0b\n\n"
    kept = "crushed, mostly\n\n- ask K.: why?"
    assert plain_field("note", text) == plain_field("note", kept) == kept
    assert plain_field("name", text) == "crushed, mostly - ask K.: why?"
    text = changed_text(Path("n.yaml"), "", 1, {"name": "nest", "note": kept}, 3)
    assert parse_namings(Path("n.yaml"), text, 3) == {1: Naming("nest", kept)}
    assert parse_namings(Path("n.yaml"), COMMENTED.replace(">", "|"), 4)[1].note == "long text\nhere"


@given(TEXTS)
def test_hostile_text_becomes_one_line(text):
    line = plain(text)
    assert len(line.splitlines()) <= 1
    assert plain(line) == line
    assert parse_namings(Path("n.yaml"), f"C0: {entry(Naming(line, line))}\n", 1).get(0, Naming()) == Naming(line, line)
