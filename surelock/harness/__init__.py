"""The model `surelock` for lm-evaluation-harness. No other part of the package imports or needs `lm_eval`."""
