"""The YAML reader of the user's files: plain data, numbers as trainers read them, so many values at most."""

import re

import yaml

from tui_train.base.parse import Unparsable

# A few lines with references can expand to billions of values.
MAX_YAML_VALUES = 50_000


class UserYamlLoader(yaml.SafeLoader):
    """Reads 1e-4 as a number, as YAML 1.2 and most trainers do; YAML 1.1 requires 1.0e-4.

    Of too many values it reads no more: 1 MiB of them would take a minute.
    """

    # Names are nodes as well.
    nodes = 0

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Return the next value, and count it."""
        self.nodes += 1
        if self.nodes > 2 * MAX_YAML_VALUES:
            raise Unparsable("it has too many values or too many levels")
        return super().compose_node(parent, index)


UserYamlLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float", re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)[eE][-+]?[0-9]+"), list("-+.0123456789")
)
