"""Usage: cargo metadata … | sbom_check.py FILE: the list is CycloneDX 1.5, and has every package that is built."""

import json
import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

text = open(sys.argv[1]).read()
error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(text)
if error:
    sys.exit(f"{sys.argv[1]}: {error}")

metadata = json.load(sys.stdin)
nodes = {node["id"]: node for node in metadata["resolve"]["nodes"]}
named = {package["id"]: (package["name"], package["version"]) for package in metadata["packages"]}
root = next(id for id, (name, _) in named.items() if name == "cuzk")
built, left = set(), [root]
while left:
    package = left.pop()
    if package not in built:
        built.add(package)
        # Whatever is not for tests alone.
        left += [
            dependency["pkg"]
            for dependency in nodes[package]["deps"]
            if any(kind["kind"] != "dev" for kind in dependency["dep_kinds"])
        ]
listed = {(part["name"], part["version"]) for part in json.loads(text)["components"]}
missing = sorted({named[package] for package in built - {root}} - listed)
if missing:
    sys.exit(f"{sys.argv[1]} lacks {missing}")
print(f"valid CycloneDX 1.5; {len(listed)} components, every package of the build among them")
