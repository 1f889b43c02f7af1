"""The name and call of a training script: its file, its flags, its config files, presets."""
