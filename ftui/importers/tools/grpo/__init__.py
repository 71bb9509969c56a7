"""GRPO of TRL and of Axolotl, whose trainer is TRL's: keys of the stage, and functions that reward."""
