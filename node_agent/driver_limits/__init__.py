"""Limits of device memory that the driver itself holds for containers, as a second wall behind the hook's.

They hold for programs without the hook, too. Drivers have them from 615 on. No driver with them has run this code: its
tests use a stand-in. So they are off unless `--driver-memory-limits` sets them.
"""
