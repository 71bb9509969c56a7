import os
import subprocess
import sys

import msgspec

from ftui.system.process_id import identity_of, is_alive, this_process


def test_this_process_is_alive() -> None:
    assert is_alive(this_process())
    assert this_process().pid == os.getpid()


def test_a_reused_pid_is_another_process() -> None:
    me = this_process()
    assert not is_alive(msgspec.structs.replace(me, started=str(int(float(me.started)) + 1)))


def test_another_boot_or_namespace_is_another_process() -> None:
    assert not is_alive(msgspec.structs.replace(this_process(), boot="0"))
    assert not is_alive(msgspec.structs.replace(this_process(), namespace="pid:[1]"))


def test_nobody_is_not_alive() -> None:
    assert not is_alive(None)


def test_a_zombie_is_gone() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    identity = identity_of(child.pid)
    assert is_alive(identity)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # ended, but not reaped: a zombie
    assert not is_alive(identity)
    assert identity_of(child.pid) is None
    child.communicate()
    assert not is_alive(identity)
