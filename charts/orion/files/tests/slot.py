"""What a pod with a slot has to find: the hook before all other libraries, and an agent behind the slot."""

import os
import socket
import sys
from pathlib import Path

HOOK, SLOTS = "/run/orion/lib/liborion_hook.so", Path("/run/orion/slots")

preloaded = os.environ.get("LD_PRELOAD", "")
if preloaded.split(":")[0] != HOOK:
    sys.exit(f"the webhook has not been here: LD_PRELOAD is {preloaded!r}")
if HOOK not in Path("/proc/self/maps").read_text():
    sys.exit(f"the hook is not loaded: {HOOK} {'is there' if Path(HOOK).exists() else 'was not mounted'}")
slots = sorted(SLOTS.glob("*/agent.sock"))
if len(slots) != 1:
    sys.exit(f"one slot was asked for, and {len(slots)} were mounted below {SLOTS}")
with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as agent:
    agent.settimeout(20)
    try:
        agent.connect(str(slots[0]))
    except OSError as error:
        sys.exit(f"no agent answers at {slots[0]}: {error}")
print(f"a slot of {slots[0].parent.name}: hook loaded, agent there")
