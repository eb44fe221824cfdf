"""The model `surelock` of lm-evaluation-harness. Nothing else imports `lm_eval`, and it is needed for nothing else."""
