"""YAML files as plain values: small, without repeated keys, and without anchors that expand to millions of values."""

import re
from pathlib import Path
from typing import Any

import yaml

from panther.errors import InputError, error_context

STUDY, KEYS = "study file", "name, features, task; `panther study new` writes a template"
LARGEST = 1_000_000  # bytes; a study is a page of text
MOST_VALUES = 20_000  # with anchors expanded


class _Loader(yaml.SafeLoader):
    """Plain values only; `1e-4` is a number, as in YAML 1.2, and keys are unique."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in keys:
                    raise InputError(f"line {key.start_mark.line + 1}: the key {key.value!r} is there twice")
                keys.add(key.value)
        return super().construct_mapping(node, deep)


def _whole_number(loader: _Loader, node: yaml.ScalarNode) -> Any:
    """12:00:00 stays text; in YAML 1.1 it is a sexagesimal number."""
    return node.value if ":" in node.value else loader.construct_yaml_int(node)


_Loader.add_constructor("tag:yaml.org,2002:int", _whole_number)
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?\d+(\.\d*)?[eE][-+]?\d+\Z"), list("-+0123456789")
)


def read_yaml(path: Path, what: str = STUDY, expected: str = KEYS) -> dict[str, Any]:
    """Mapping at the top of a YAML file; messages name ``what`` the file is and the ``expected`` keys."""
    try:
        with error_context(path):
            if path.stat().st_size > LARGEST:
                raise InputError(f"has {path.stat().st_size / 1e6:.1f} MB, too large for a {what}")
            loader = _Loader(path.read_text(encoding="utf-8-sig"))
            try:
                node = loader.get_single_node()
                if node is not None:
                    _count_values(node, set(), {})
                content = None if node is None else loader.construct_document(node)
            finally:
                loader.dispose()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, yaml.YAMLError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else " ".join(str(error).split())
        raise InputError(f"{path}: is not YAML in UTF-8 ({reason})") from error
    if not isinstance(content, dict) or not all(isinstance(key, str) for key in content):
        raise InputError(f"{path}: expected keys like {expected}")
    return content


def _count_values(node: yaml.Node, above: set[int], known: dict[int, int]) -> int:
    """Number of values of a node with its anchors expanded; recursive anchors and too many values are refused."""
    if id(node) in above:
        raise InputError(f"line {node.start_mark.line + 1}: the anchor contains itself")
    if id(node) not in known:
        children = node.value if isinstance(node, yaml.SequenceNode) else []
        if isinstance(node, yaml.MappingNode):
            children = [part for pair in node.value for part in pair]
        known[id(node)] = 1 + sum(_count_values(child, above | {id(node)}, known) for child in children)
    if known[id(node)] > MOST_VALUES:
        raise InputError(f"its anchors expand to more than {MOST_VALUES:,} values")
    return known[id(node)]
