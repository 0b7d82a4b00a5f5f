"""GPUs that a high-priority tenant and best-effort jobs share.

harvest   how fast a best-effort job runs beneath a tenant
"""
