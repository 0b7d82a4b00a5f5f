"""Checks that a pod with a slot loads the hook before all other libraries, and that an agent answers at its slot."""

import os
import socket
import sys
from pathlib import Path

HOOK, SLOTS = "/run/orion/lib/liborion_hook.so", Path("/run/orion/slots")

preloaded = os.environ.get("LD_PRELOAD", "")
if preloaded.split(":")[0] != HOOK:
    sys.exit(f"LD_PRELOAD is {preloaded!r}, so the webhook did not change this pod: look at the webhook's log")
if HOOK not in Path("/proc/self/maps").read_text():
    there = "exists" if Path(HOOK).exists() else "is not mounted"
    sys.exit(f"the hook is not loaded: {HOOK} {there}; look at the device plugin's log")
slots = sorted(SLOTS.glob("*/agent.sock"))
if len(slots) != 1:
    sys.exit(f"the pod asked for one slot, but {len(slots)} are mounted below {SLOTS}: look at the device plugin's log")
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
    agent.settimeout(20)
    try:
        agent.connect(str(slots[0]))
    except OSError as error:
        sys.exit(f"no agent answers at {slots[0]}: {error}; look at the agent's log")
print(f"slot of {slots[0].parent.name}: the hook is loaded, the agent answers")
