"""YAML of a study file as plain values: small, without repeated keys, and without anchors that grow beyond measure."""

import re
from pathlib import Path
from typing import Any

import yaml

from panther.errors import InputError

STUDY, KEYS = "study file", "name, features, task; `panther study new` writes a template"
LARGEST = 1_000_000  # bytes; a study is a page of text
MOST_VALUES = 20_000  # after anchors are written out


class _Loader(yaml.SafeLoader):
    """Plain values only; `1e-4` is a number, as in YAML 1.2, and a key stands once."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        seen: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise InputError(f"the key {key.value!r} stands twice, the second time in {_line(key)}; keep one.")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def _whole_number(loader: _Loader, node: yaml.ScalarNode) -> Any:
    """12:00:00 is a time, and no number to the base of 60 as in YAML 1.1."""
    return node.value if ":" in node.value else loader.construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+\Z"), list("-+0123456789")
)


def read_yaml(path: Path, what: str = STUDY, expected: str = KEYS) -> dict[str, Any]:
    """Mapping at the top of a YAML file; ``what`` it should be, and which keys are ``expected``, for sentences."""
    try:
        if path.stat().st_size > LARGEST:
            raise InputError(f"{path}: has {path.stat().st_size / 1e6:.1f} MB, which is no {what}.")
        content = _parsed(path.read_text(encoding="utf-8-sig"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}).") from error
    except UnicodeDecodeError as error:
        raise InputError(
            f"{path}: is not UTF-8 text ({error.reason} at byte {error.start}); save it as UTF-8."
        ) from error
    except yaml.YAMLError as error:
        raise InputError(f"{path}: is not YAML ({' '.join(str(error).split())}).") from error
    except RecursionError as error:
        raise InputError(f"{path}: is nested too deeply for a {what}.") from error
    except InputError as error:
        raise error if str(error).startswith(str(path)) else InputError(f"{path}: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"{path}: expected keys like {expected}.")
    return content


def _parsed(text: str) -> Any:
    loader = _Loader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            return None
        _written_out(node, set(), {})
        return loader.construct_document(node)
    finally:
        loader.dispose()


def _written_out(node: yaml.Node, above: set[int], known: dict[int, int]) -> int:
    """How many values a node is once its anchors are written out; refuses what holds itself, and what is too much."""
    if id(node) in above:
        raise InputError(f"the anchor in {_line(node)} holds itself; write it out.")
    if id(node) not in known:
        children = node.value if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            children = [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(_written_out(child, above | {id(node)}, known) for child in children)
    if known[id(node)] > MOST_VALUES:
        raise InputError(f"its anchors write out to more than {MOST_VALUES:,} values; a study has some dozens.")
    return known[id(node)]


def _line(node: yaml.Node) -> str:
    return f"line {node.start_mark.line + 1}"
