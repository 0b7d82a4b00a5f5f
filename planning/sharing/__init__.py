"""GPUs that a high-priority tenant and best-effort jobs share.

due       which part of a GPU's time each best-effort slot is due
harvest   how fast a best-effort job runs beneath a tenant
"""
