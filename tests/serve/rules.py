#!/usr/bin/env python3
"""rules.py - examples/prometheus-rules.yml: promtool's own check, its tests (rules_test.yml), each metric exists in the docs,
and each alert has a section in docs/operating.md and a test."""
import os
import re
import subprocess
import tempfile

source = os.environ["MORTISE_SOURCE_DIR"]
here = os.path.dirname(os.path.abspath(__file__))


def read(*path):
    with open(os.path.join(*path), encoding="utf-8") as file:
        return file.read()


rules = os.path.join(source, "examples", "prometheus-rules.yml")
text, tests = read(rules), read(here, "rules_test.yml")
operating, plugins = read(source, "docs", "operating.md"), read(source, "docs", "plugins.md")
subprocess.run(["promtool", "check", "rules", "--lint=all", "--lint-fatal", rules], check=True)
with tempfile.NamedTemporaryFile("w", suffix=".yml") as file:
    file.write(tests.replace("RULES", rules))
    file.flush()
    subprocess.run(["promtool", "test", "rules", file.name], check=True)

for metric in set(re.findall(r"(?<![:\w])mortise_\w+", re.sub(r"record: .*", "", text))):
    base = re.sub(r"_(bucket|sum|count)$", "", metric)
    assert base.startswith("mortise_backend_") and base == "mortise_backend_" or f"`{base}" in operating + plugins, f"no page knows {metric}"
alerts = re.findall(r"- alert: (\w+)", text)
for alert in alerts:
    assert f"\n### {alert}\n" in operating, f"docs/operating.md has no section for {alert}"
    assert f"runbook_url: https://runbooks.example/mortise/docs/operating.md#{alert.lower()}\n" in text, f"{alert} does not name its section"
    assert re.search(f"alertname: {alert}, eval_time", tests) and re.search(f"alertname: {alert}\n", tests), f"{alert} has no test of both kinds"
for section in re.findall(r"^### (Mortise\w+)$", operating, re.M):
    assert section in alerts, f"docs/operating.md has a section for {section}, which is no alert"
print(f"{len(alerts)} alerts, each with a test and a section")
