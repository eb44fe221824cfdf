"""How the embedded checkpoint was made: data, tokenizer, masked diffusion objective, optimiser, trainer, evaluation."""
