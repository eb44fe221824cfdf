"""No file of the current folder, or beside a checkpoint, is run: neither here nor in a process that is started."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest
from checkpoints import write_chat_model

from surelock.current_folder import module_path
from surelock.decoding.outside import import_rules
from surelock.model import trial
from surelock.model.trial import check_tokenizer
from tests.browser.server import ROOT

#: What starts a process, by the first names of a call.
STARTS = {
    *[
        "subprocess",
        "multiprocessing",
        "popen",
        "Popen",
        "ProcessPoolExecutor",
        "system",
        "posix_spawn",
    ],
    *["create_subprocess_exec", "create_subprocess_shell", "startfile", "fork", "forkpty"],
    *(
        f"{how}{end}"
        for how in ("exec", "spawn")
        for end in ["l", "le", "lp", "lpe", "v", "ve", "vp", "vpe"]
    ),
}
MODULES = [
    *[
        "transformers",
        "tokenizers",
        "torch",
        "numpy",
        "lazy_loader",
        "pandas",
        "gguf",
        "torchao",
        "sentencepiece",
    ],
    *[
        "sitecustomize",
        "usercustomize",
        "argparse",
        "json",
        "re",
        "subprocess",
        "tempfile",
        "resource",
        "encodings",
    ],
]


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    """A checkpoint beside which files have the names of modules. Whichever is run writes `was_run`."""
    folder = tmp_path / "checkpoint"
    write_chat_model(folder)
    text = f"open({str(tmp_path / 'was_run')!r}, 'a').write(__name__ + ' ')\n"
    for name in MODULES:
        (folder / f"{name}.py").write_text(text)
    (folder / "evil.py").write_text(text)
    return folder


def was_run(folder: Path) -> str:
    written = folder.parent / "was_run"
    return written.read_text() if written.exists() else ""


def test_only_the_trial_starts_a_process() -> None:
    found = set[str]()
    for file in (ROOT / "app.py", *(ROOT / "surelock").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            names = [node.attr] if isinstance(node, ast.Attribute) else []
            names += (
                [each.name.split(".")[0] for each in node.names]
                if isinstance(node, ast.Import)
                else []
            )
            names += [str(node.module).split(".")[0]] if isinstance(node, ast.ImportFrom) else []
            found |= {file.name} if STARTS & {*names} else set()
    assert found == {"trial.py"}


@pytest.mark.parametrize("python_path", [None, os.pathsep.join(["", ".", "{}", str(ROOT)])])
def test_the_trial_runs_nothing_beside_a_checkpoint(
    hostile: Path, python_path: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(hostile)
    monkeypatch.setattr(sys, "path", [*sys.path, "", ".", str(hostile)])
    for name in ["STARTUP", "HOME", "USERBASE", "BREAKPOINT", "WARNINGS"]:
        monkeypatch.setenv(f"PYTHON{name}", str(hostile / "evil.py"))
    if python_path is not None:
        monkeypatch.setenv("PYTHONPATH", python_path.format(hostile))
    check_tokenizer(hostile, seconds=60)
    assert was_run(hostile) == ""


def test_a_trial_gets_no_secret_and_a_folder_of_its_own(
    hostile: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told: dict[str, object] = {}

    def run(command: list[str], **how: object) -> subprocess.CompletedProcess[bytes]:
        told.update(how, flags=command[1:4], empty=os.listdir(str(how["cwd"])) == [])
        return subprocess.CompletedProcess(command, 0, b"done", b"")

    names = ["HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "HTTP_PROXY", "PYTHONSTARTUP", "LD_PRELOAD"]
    for name in names:
        monkeypatch.setenv(name, "x")
    monkeypatch.setattr(trial.subprocess, "run", run)
    check_tokenizer(hostile)
    environment = told["env"]
    assert isinstance(environment, dict) and told["flags"] == ["-P", "-X", "utf8"] and told["empty"]
    assert environment.keys().isdisjoint(names)
    assert {"PATH", "PYTHONPATH"} <= environment.keys() and not Path(str(told["cwd"])).exists()


def test_a_trial_that_cannot_begin_says_why(hostile: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no fault of the tokenizer."""
    monkeypatch.setattr(trial, "module_path", lambda *_: [str(hostile.parent)])
    with pytest.raises(ValueError, match=r"could not be tried in another process: .*surelock"):
        check_tokenizer(hostile)


@pytest.mark.parametrize("python_path", [str(ROOT), f"{os.pathsep}{ROOT}"])
def test_a_command_runs_nothing_in_the_current_folder(hostile: Path, python_path: str) -> None:
    """Python itself puts the current folder first for `-m`, and for an empty part of PYTHONPATH."""
    for name in ("sitecustomize", "usercustomize"):  # Python runs these before any program
        (hostile / f"{name}.py").unlink()
    if python_path != str(ROOT):  # what Python imports before this package
        for name in ("encodings", "argparse", "re", "json"):
            (hostile / f"{name}.py").unlink()
    words = ["-m", "surelock", "decode", "[1]", "--model", ".", "--gen-length", "4"]
    command = [sys.executable, *words]
    environment = os.environ | {"PYTHONPATH": python_path}
    done = subprocess.run(command, cwd=hostile, env=environment, capture_output=True, text=True)
    assert was_run(hostile) == "", done.stderr
    assert done.returncode == 0, done.stderr


def test_the_path_of_a_child_begins_with_this_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", "lib", str(tmp_path), "/some/packages", str(ROOT)])
    assert module_path("/some/checkpoint") == [str(ROOT), str(tmp_path / "lib"), "/some/packages"]
    monkeypatch.chdir(ROOT)  # a clone, in which the page is started
    assert module_path("/some/packages")[0] == str(ROOT)


def test_a_rule_is_imported_from_the_current_folder_and_nothing_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rules_of_mine.py").write_text("from surelock import Everything as Mine\n")
    monkeypatch.chdir(tmp_path)
    before = [each for each in sys.path if each]
    monkeypatch.setattr(sys, "path", list(before))
    import_rules("rules_of_mine:Mine")
    assert "rules_of_mine" in sys.modules and sys.path == before
