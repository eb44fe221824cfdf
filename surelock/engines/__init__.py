"""Engines compute the rows of a plan. They do not know why a run has chosen these rows."""

import os

# ONNX Runtime 1.29 and later send telemetry unless this is set before the import.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")

#: The values of `engine=`. "auto" is ONNX Runtime for float32 on one CPU, torch for everything else.
ENGINES = ("auto", "torch", "onnx")
