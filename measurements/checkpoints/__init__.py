"""The processes of the probe of checkpoints (measurements/probes/checkpoint.py): each tries one thing."""
