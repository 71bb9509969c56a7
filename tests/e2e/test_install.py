"""Installing ftui where a pod image already has its own torch."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]


def test_torch_of_the_image_is_left_alone(tmp_path: Path) -> None:
    """pip resolves the installation beside a torch 2.6.0 (its metadata is all pip looks at) and does not touch it."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "pod"], check=True)
    (site,) = (tmp_path / "pod" / "lib").glob("python*/site-packages")
    image = site / "torch-2.6.0.dist-info"
    image.mkdir()
    (image / "METADATA").write_text("Metadata-Version: 2.1\nName: torch\nVersion: 2.6.0\n")
    (image / "INSTALLER").write_text("pip\n")
    (image / "RECORD").write_text("")
    python = tmp_path / "pod" / "bin" / "python"
    command = [sys.executable, "-m", "pip", "--python", str(python), "install", "--dry-run", "--quiet", "--report", "-"]
    result = subprocess.run([*command, str(ROOT)], capture_output=True, text=True, timeout=600)
    if "Could not fetch URL" in result.stderr or "NewConnectionError" in result.stderr:
        pytest.skip("the package index cannot be reached")
    assert result.returncode == 0, result.stderr
    planned = {item["metadata"]["name"].lower() for item in json.loads(result.stdout)["install"]}
    assert {"finetune-tui", "transformers", "peft"} <= planned
    assert "torch" not in planned


def test_an_older_torch_would_be_replaced() -> None:
    """The test above can fail: 2.6 is where the range begins."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    torch = next(r for r in map(Requirement, wanted) if r.name == "torch")
    assert torch.specifier.contains("2.6.0")
    assert not torch.specifier.contains("2.5.1")
