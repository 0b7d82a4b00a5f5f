"""Runs a program for which close_range does not exist, as before Linux 5.9. Arguments: the program and its own."""

import ctypes
import os
import struct
import sys

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
LOAD, JUMP_IF_EQUAL, RETURN = 0x20, 0x15, 0x06  # BPF_LD | BPF_W | BPF_ABS, BPF_JMP | BPF_JEQ | BPF_K, BPF_RET | BPF_K
ALLOW, ERROR, ENOSYS = 0x7FFF0000, 0x00050000, 38
CLOSE_RANGE = 436  # on every architecture
FILTER = [
    (LOAD, 0, 0, 0),  # the number of the system call
    (JUMP_IF_EQUAL, 0, 1, CLOSE_RANGE),
    (RETURN, 0, 0, ERROR | ENOSYS),
    (RETURN, 0, 0, ALLOW),
]


class Program(ctypes.Structure):
    """struct sock_fprog."""

    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.c_char_p))


libc = ctypes.CDLL(None, use_errno=True)
instructions = b"".join(struct.pack("HBBI", *instruction) for instruction in FILTER)
program = Program(len(FILTER), instructions)
for arguments in (
    (PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
    (PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program), 0, 0),
):
    if libc.prctl(*arguments) != 0:
        raise OSError(ctypes.get_errno(), "prctl")
os.execvp(sys.argv[1], sys.argv[1:])
