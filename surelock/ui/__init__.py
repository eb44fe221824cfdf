"""The page: the only part of the package that imports gradio."""
