"""The extension for VS Code: its manifest as vsce reads it, and its code with a stand-in for VS Code."""

import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from debug.dap_client import Client
from debug.debugged import PTX
from lanewise.cli.launching import Asked
from lanewise.ptx.tools.runtime_compiler import load

FOLDER = Path(__file__).parents[2] / "editors" / "vscode"
MANIFEST: dict[str, Any] = json.loads((FOLDER / "package.json").read_text())
#: What the adapter itself reads of a launch, beside what `lanewise run` takes.
OF_THE_SESSION = {"program", "check", "stopOnEntry", "stopAtEnd"}
#: Names of a configuration that are others at the command line.
RENAMED = {"kernelArguments": "arg", "args": "arguments", "define": "compilation", "include": "compilation"}


def test_the_manifest_has_what_vsce_demands() -> None:
    for name in ("name", "publisher", "version", "engines", "license", "description"):
        assert MANIFEST[name], name
    assert re.fullmatch(r"[a-z0-9][a-z0-9\-]*", MANIFEST["name"])
    assert re.fullmatch(r"\d+\.\d+\.\d+", MANIFEST["version"])
    assert re.fullmatch(r"\^1\.\d+\.0", MANIFEST["engines"]["vscode"])
    # Links of the README lead out of the folder: vsce makes addresses of them by this, or is told not to.
    assert "repository" not in MANIFEST or MANIFEST["repository"]["directory"] == "editors/vscode"
    for name in (MANIFEST["main"], *MANIFEST["files"]):
        assert (FOLDER / name).is_file()
    readme = (FOLDER / "README.md").read_text()
    assert "vsce package --skip-license" in readme
    assert ("--no-rewrite-relative-links" in readme) == ("repository" not in MANIFEST)


def test_every_language_is_known_and_can_have_breakpoints() -> None:
    contributes = MANIFEST["contributes"]
    (debugger,) = contributes["debuggers"]
    known = {each["id"] for each in contributes["languages"]} | {"python"}
    assert set(debugger["languages"]) == known == {each["language"] for each in contributes["breakpoints"]}
    assert MANIFEST["activationEvents"] == [f"onDebugResolve:{debugger['type']}"]


def test_a_configuration_has_what_a_launch_takes() -> None:
    launch = MANIFEST["contributes"]["debuggers"][0]["configurationAttributes"]["launch"]
    assert set(launch["required"]) <= set(launch["properties"])
    fields = {RENAMED.get(name, name) for name in launch["properties"]} - OF_THE_SESSION
    assert fields <= set(Asked.__dataclass_fields__), fields
    for name, each in launch["properties"].items():
        assert each["description"].endswith(".") and each["type"], name
        kinds = each["type"] if isinstance(each["type"], list) else [each["type"]]
        assert set(kinds) <= {"string", "number", "boolean", "array"}


def test_the_configuration_of_the_readme_is_a_legal_one() -> None:
    text = (FOLDER / "README.md").read_text()
    (example,) = json.loads(re.findall(r"```json\n(.*?)```", text, re.S)[0])["configurations"]
    debugger = MANIFEST["contributes"]["debuggers"][0]
    (first,) = debugger["initialConfigurations"]
    kinds = {"string": str, "number": (int, float), "boolean": bool, "array": list}
    for configuration in (example, first):
        assert configuration["type"] == debugger["type"] and configuration["request"] == "launch"
        properties = debugger["configurationAttributes"]["launch"]["properties"]
        for name in configuration.keys() - {"type", "request", "name"}:
            allowed = properties[name]["type"]
            allowed = allowed if isinstance(allowed, list) else [allowed]
            assert any(isinstance(configuration[name], kinds[each]) for each in allowed), name


def test_numbers_and_lists_of_a_configuration_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "k.ptx"
    path.write_text(PTX)
    client = Client()
    client.begin(path, {}, grid=1, block=[32], kernelArguments=["zeros:f32:32"], steps=1000, stopOnEntry=True)
    assert client.event("stopped")["reason"] == "entry"
    client.send("disconnect")


@pytest.mark.skipif(load(13) is None, reason="NVRTC is not installed (extra `cuda`)")
def test_macros_and_folders_of_headers_reach_the_compiler(tmp_path: Path) -> None:
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / "three.h").write_text("constexpr int THREE = 3;")
    path = tmp_path / "k.cu"
    path.write_text('#include "three.h"\n__global__ void k(int *x) { x[threadIdx.x] = VALUE + THREE; }\n')
    client = Client()
    client.begin(
        path, {}, block=32, kernelArguments=["zeros:i32:32"], stopAtEnd=True, define=["VALUE=39"],
        include=[str(tmp_path / "headers")],
    )  # fmt: skip
    client.event("stopped")
    frame = client.ask("stackTrace", threadId=1)["stackFrames"][0]["id"]
    assert client.ask("evaluate", expression="x[5]", frameId=frame)["result"].endswith("42")
    client.send("disconnect")


STAND_IN = """
const registered = [];
const Module = require("module");
const load = Module._load;
Module._load = (name, ...rest) => name !== "vscode" ? load(name, ...rest) : {
  debug: {
    registerDebugAdapterDescriptorFactory: (...both) => { registered.push(both); return {}; },
  },
  workspace: { getConfiguration: () => ({ get: (key) => (key === "command" ? process.argv[2] : "") }) },
  DebugAdapterExecutable: class {
    constructor(command, args, options) { Object.assign(this, { command, args, options }); }
  },
};
const extension = require(process.argv[1]);
const context = { subscriptions: [] };
extension.activate(context);
const [type, factory] = registered[0];
const folder = { uri: { fsPath: "/work" } };
console.log(JSON.stringify({
  type, kept: context.subscriptions.length,
  within: factory.createDebugAdapterDescriptor({ workspaceFolder: folder }),
  alone: factory.createDebugAdapterDescriptor({}),
}));
extension.deactivate();
"""


@pytest.mark.skipif(shutil.which("node") is None, reason="there is no Node.js")
@pytest.mark.parametrize("command", ["", ".venv/bin/lanewise"])
def test_the_extension_starts_the_adapter(command: str) -> None:
    said = subprocess.run(
        ["node", "-e", STAND_IN, str(FOLDER / "extension.js"), command],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = json.loads(said.stdout)
    assert found["type"] == MANIFEST["contributes"]["debuggers"][0]["type"] and found["kept"] == 1
    started = {"command": command or "lanewise", "args": ["debug", "--dap"]}
    assert found["within"] == {**started, "options": {"cwd": "/work"}} and found["alone"] == started
