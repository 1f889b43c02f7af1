"""How a training script is named and called: its file, its flags, its config files, presets."""
