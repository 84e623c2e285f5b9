"""The pages that list what the server has, compared with the server itself:
docs/configuration.md with `snug serve --help-all`, docs/compatibility.md with
`COMMAND LIST`. A parameter or command added without its line fails here."""

import pathlib
import re
import subprocess

import pytest

DOCS = pathlib.Path(__file__).resolve().parents[2] / "docs"


@pytest.mark.snug_only
def test_every_parameter_is_documented_as_it_is(target):
    text = subprocess.run([*target.command(), "--help-all"], capture_output=True, text=True, check=True).stdout
    listed = [(name, default, " ".join(line.split())) for name, default, line in re.findall(r"^  --(\S+) \[(.*)\]\n((?: {8}.*\n)+)", text, re.MULTILINE)]
    idle = {name: line.removeprefix("Without effect: ").rstrip(".") for name, _, line in listed if line.startswith("Without effect: ")}
    # In brackets stand the values that there are, which the page has in a column.
    parameters = [(name, default, re.sub(r" \([^()]*\)$", "", line)) for name, default, line in listed if name not in idle]
    page, _, without_effect = (DOCS / "configuration.md").read_text().partition("## Accepted, without effect")
    rows = re.findall(r"^\| `(\S+)` \| (.*) \| .* \| (?:yes|no|protected) \| (.*) \|$", page, re.MULTILINE)
    documented = [(name, default.strip("`").replace("empty", '""'), line) for name, default, line in rows]
    assert sorted(documented) == sorted(parameters)
    assert re.findall(r"^- `([a-z_-]+)`: (.*)$", without_effect, re.MULTILINE) == sorted(idle.items())


@pytest.mark.snug_only
def test_every_command_is_listed(shared_server):
    with shared_server.connect() as connection:
        served = {name.decode().upper() for _, name in connection.call("COMMAND", "LIST")[1]}
    page = (DOCS / "compatibility.md").read_text()
    groups = re.findall(r"^\| [A-Za-z/ ]+ \| (`[A-Z].*) \|$", page, re.MULTILINE)
    containers = re.findall(r"^\| `([A-Z]+)` \| ([A-Z].*) \|$", page, re.MULTILINE)
    commands = {name for row in groups for name in re.findall(r"`([A-Z0-9_-]+)`", row)}
    subcommands = {f"{name}|{sub}" for name, subs in containers for sub in subs.split(", ")}
    assert commands == {name for name in served if "|" not in name}
    assert subcommands == {name for name in served if "|" in name}


@pytest.mark.snug_only
def test_every_subcommand_of_debug_is_listed(shared_server):
    with shared_server.connect() as connection:
        lines = [line.decode() for _, line in connection.call("DEBUG", "HELP")[1]]
    page = (DOCS / "compatibility.md").read_text()
    (listed,) = re.findall(r"^`DEBUG` .* Its subcommands: (.*)\.$", page, re.MULTILINE)
    assert listed.split(", ") == sorted(line.split()[0] for line in lines[1:] if line[0] != " ")
