"""Several processes as one run. Rank 0 leads: it alone reads requests, decides and writes.

Gradients are summed here, after all backward passes of a step, and not by hooks inside them as torch's
DistributedDataParallel does: so a rank that runs out of memory can say so before anyone waits for its part, and ranks
may have unequal numbers of micro-batches. The cost is that nothing is sent while a backward pass still computes.
"""

import json
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor

from ftui.errors import FtuiError, HardwareError, ProfileError, error_with
from ftui.profile.schema import Profile
from ftui.profile.serialize import fewer_processes
from ftui.supervisor.engine_process import LISTENER, OWN_FOLDER, PLACE, RankLostError

from ..system.device import Hardware, num_nvidia_gpus
from ..system.memory import first_line, is_out_of_memory

T = TypeVar("T")

ELSEWHERE = "on another rank"
LAST_WORD = "last word"

PATIENCE = timedelta(days=365)  # a pause may last; a rank that has died is noticed by its broken connection
TO_MEET = timedelta(minutes=10)  # all start together; one that has lost its supervisor waits no longer than that
BUCKET_BYTES = 64 << 20  # of gradients sent in one piece


class Action(IntEnum):
    """The kinds of commands that rank 0 sends to the other ranks."""

    RESTORE = 0  # the checkpoint of step `number`; 0: there is none, allocate the optimizer's state
    STEP = 1  # forward and backward passes of step `number` in micro-batches of `size` rows, loss times `factor`
    APPLY = 2  # update the weights with a learning rate of `factor`
    DROP = 3  # drop the gradients
    SEND_STATE = 4  # send the state of the random generators and a digest of the weights
    END = 5
    READ = 7  # read the weights of the checkpoint of step `number`
    GATHER = 8  # take part in gathering the `number`-th tensor that is divided among the ranks
    CHECK_FINITE = 9  # say whether this rank's weights are finite
    FORWARD = 6  # take part in a forward pass that rank 0 makes alone, where the base is sharded
    SHARE = 10  # begin this rank's part of the work of kind `size` for rollout `number`
    TURN = 11  # make one pass of that work
    COLLECT = 12  # send what it has given
    LOAD = 13  # receive rollout `number`, in `size` pieces


class RankCommand(NamedTuple):
    """A command of rank 0 to the other ranks; `Action` says which fields count."""

    action: Action
    number: int = 0
    size: int = 0
    factor: float = 0.0


class ProcessGroup:
    """All processes of a run; by default one, for which every exchange costs nothing."""

    def __init__(
        self, rank: int = 0, size: int = 1, store: Any = None, *, local_rank: int = 0, local_size: int = 0,
        own_folders: Sequence[bool] = (),
    ) -> None:  # fmt: skip
        self.rank = rank
        self.size = size
        self.own_folders = own_folders or [False] * size
        """By rank: whether it does not see rank 0's folder of the run."""
        self._local_rank, self._local_size = local_rank, local_size or size
        self._store = store

    @property
    def is_first_of_node(self) -> bool:
        """Whether this is the first rank of its machine."""
        return self._local_rank == 0

    @property
    def num_nodes(self) -> int:
        """How many machines the ranks are on."""
        return self.size // self._local_size

    @property
    def is_leader(self) -> bool:
        """Whether this is rank 0."""
        return self.rank == 0

    def order(self, command: RankCommand) -> None:
        """On rank 0: send all others their next command."""
        if self.size > 1:
            with _lost_rank_errors():
                dist.broadcast(torch.tensor([float(part) for part in command], dtype=torch.float64), src=0)

    def next_order(self) -> RankCommand:
        """On the others: wait for the next command of rank 0."""
        command = torch.zeros(4, dtype=torch.float64)
        with _lost_rank_errors():
            dist.broadcast(command, src=0)
        action, number, size, factor = command.tolist()
        return RankCommand(Action(int(action)), int(number), int(size), factor)

    def gather(self, data: bytes) -> list[bytes]:
        """The data of every rank, by rank."""
        if self.size == 1:
            return [data]
        with _lost_rank_errors():
            lengths = [torch.zeros(1, dtype=torch.int64) for _ in range(self.size)]
            dist.all_gather(lengths, torch.tensor([len(data)]))
            longest = max(1, *(int(length) for length in lengths))  # torch makes no tensor of no bytes
            padded = torch.frombuffer(bytearray(data.ljust(longest, b"\0")), dtype=torch.uint8)
            parts = [torch.zeros(longest, dtype=torch.uint8) for _ in range(self.size)]
            dist.all_gather(parts, padded)
        return [bytes(part[: int(length)].numpy()) for part, length in zip(parts, lengths, strict=True)]

    def any(self, value: bool) -> bool:
        """Whether the value is true on any rank."""
        return value if self.size == 1 else bool(self._largest(torch.tensor([int(value)])).item())

    def add_gradients(self, weights: Sequence[torch.nn.Parameter]) -> str:
        """Sum the gradients of all ranks. A weight without one on every rank stays so.

        Returns why memory ran out, here or on another rank, before anything was summed; "" where it did not.
        """
        if self.size == 1 or not weights:
            return ""
        has = self._largest(torch.tensor([int(weight.grad is not None) for weight in weights])).tolist()
        problem = ""
        try:
            buckets, room = make_buckets(_grads(weights, has))
        except RuntimeError as error:
            if not is_out_of_memory(error):
                raise
            problem = first_line(error)
        if self.any(problem != ""):
            return problem or ELSEWHERE
        with _lost_rank_errors(), torch.no_grad():
            for bucket in buckets:
                sizes = [grad.numel() for grad in bucket]
                flat = room[bucket[0].dtype][: sum(sizes)]
                torch.cat([grad.reshape(-1) for grad in bucket], out=flat)
                dist.all_reduce(flat)
                for grad, summed in zip(bucket, flat.split(sizes), strict=True):
                    grad.copy_(summed.view_as(grad))
        return ""

    def add(self, value: Tensor) -> None:
        """Sum a tensor over all ranks, in place."""
        if self.size > 1:
            with _lost_rank_errors():
                dist.all_reduce(value)

    def send(self, data: Tensor, source: int) -> None:
        """Rank `source` sends a tensor of the host's memory, the others receive into theirs of the same shape."""
        with _lost_rank_errors():
            dist.broadcast(data, src=source)

    def leave_word(self, text: str) -> None:
        """Say why this rank ends, while rank 0 waits for it."""
        self._store.set(LAST_WORD, text)

    def last_word(self) -> str:
        """On rank 0: what another rank has said before it was gone, "" for nothing."""
        return str(self._store.get(LAST_WORD).decode()) if self._store.check([LAST_WORD]) else ""

    def leader_first(self, act: Callable[[], T]) -> T:
        """Rank 0 does it, then the first rank of every other node, then all others, who find in the cache what was left
        there: it may be one cache for all nodes, or one for each."""
        has_nodes = self.size > self._local_size
        turn = 0 if self.is_leader else 1 if not (has_nodes and self._local_rank) else 2
        last_turn = 0 if self.size == 1 else 2 if has_nodes and self._local_size > 1 else 1
        for now in range(last_turn + 1):
            if now == turn:
                result = act()
            if now < last_turn:
                self.wait_for_all()
        return result

    def broadcast(self, data: bytes = b"") -> bytes:
        """The data of rank 0, on every rank."""
        if self.size == 1:
            return data
        length = torch.tensor([len(data)])
        self.send(length, 0)
        piece = torch.frombuffer(bytearray(data or b"\0"), dtype=torch.uint8)
        if not self.is_leader:
            piece = torch.zeros(max(1, int(length)), dtype=torch.uint8)
        self.send(piece, 0)
        return bytes(piece[: int(length)].numpy())

    def from_leader(self, find: Callable[[], T]) -> T:
        """What rank 0 finds, a value of JSON, on every rank."""
        if self.size == 1:
            return find()
        value: T = json.loads(self.gather(json.dumps(find()).encode() if self.is_leader else b"")[0])
        return value

    def wait_for_all(self) -> None:
        """Go on once every rank has come here."""
        if self.size > 1:
            with _lost_rank_errors():
                dist.barrier()

    def act_together(self, act: Callable[[], None]) -> None:
        """Every rank acts. An error (`FtuiError`) of one of them is raised on all: none waits for one that has left."""
        own: FtuiError | None = None
        try:
            act()
        except FtuiError as error:
            own = error
        told = [] if own is None else [own.exit_code, own.message, own.hint, type(own).__name__]
        for data in self.gather(json.dumps(told).encode()):
            if other := json.loads(data):
                raise own or error_with(*other)

    def check_same(self, fingerprint: str, subject: str) -> None:
        """See that all ranks have the same fingerprint of something.

        Raises:
            FtuiError: they do not.
        """
        if len(set(self.gather(fingerprint.encode()))) > 1:
            raise FtuiError(f"The ranks of this run do not agree on {subject}.", hint="Do they see the same disk?")

    def _largest(self, values: Tensor) -> Tensor:
        with _lost_rank_errors():
            dist.all_reduce(values, op=dist.ReduceOp.MAX)
        return values


def make_buckets(grads: Sequence[Tensor]) -> tuple[list[list[Tensor]], dict[torch.dtype, Tensor]]:
    """Group gradients as they are sent; returns the groups, and for each type the flat tensor they are copied into."""
    buckets = list(_buckets(grads))
    return buckets, _room(buckets)


def _buckets(grads: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    """Gradients in their order, cut where the type changes or a bucket is full."""
    bucket: list[Tensor] = []
    for grad in grads:
        is_full = sum(g.numel() * g.element_size() for g in bucket) >= BUCKET_BYTES
        if bucket and (is_full or grad.dtype != bucket[0].dtype):
            yield bucket
            bucket = []
        bucket.append(grad)
    if bucket:
        yield bucket


def _grads(weights: Sequence[torch.nn.Parameter], has: Sequence[int]) -> list[Tensor]:
    """The gradients of the weights that have one on any rank: zeros where it is not this one."""
    grads = []
    for weight, has_grad in zip(weights, has, strict=True):
        if has_grad:
            weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
            grads.append(weight.grad)
    return grads


def _room(buckets: Sequence[Sequence[Tensor]]) -> dict[torch.dtype, Tensor]:
    """A flat tensor for the largest bucket of each type."""
    largest: dict[torch.dtype, int] = {}
    for bucket in buckets:
        dtype = bucket[0].dtype
        largest[dtype] = max(largest.get(dtype, 0), sum(grad.numel() for grad in bucket))
    return {dtype: torch.empty(size, dtype=dtype, device=buckets[0][0].device) for dtype, size in largest.items()}


@contextmanager
def _lost_rank_errors() -> Iterator[None]:
    """torch says with a RuntimeError that another rank has closed its connection."""
    try:
        yield
    except RuntimeError as error:
        if is_out_of_memory(error):
            raise
        raise RankLostError(first_line(error)) from error


def join(hardware: Hardware, profile: Profile) -> ProcessGroup:
    """This process's place among the ranks, by torchrun's variables; alone without them.

    Raises:
        ProfileError: there are more or fewer ranks than the profile asks for.
        HardwareError: there are more ranks than devices.
        RankLostError: the others could not be reached.
    """
    size, num_processes = int(os.environ.get("WORLD_SIZE", "1")), profile.hardware.num_processes
    if size != num_processes:
        raise ProfileError(
            f"hardware.num_processes is {num_processes}, but {size} were started.",
            hint="Start the run with ftui, or give torchrun the same number.",
        )
    if size == 1:
        return ProcessGroup()
    local_size = int(os.environ.get("LOCAL_WORLD_SIZE", size))
    _check_devices(hardware, size, local_size, profile)
    rank = int(os.environ["RANK"])
    backend = "cpu:gloo,cuda:nccl" if hardware.device.type == "cuda" else "gloo"
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    with _lost_rank_errors():
        listener = os.environ.pop(LISTENER, None)  # on one interface; torch would listen on all
        store = dist.TCPStore(  # type: ignore[attr-defined]
            address, port, size, is_master=rank == 0, timeout=TO_MEET,
            master_listen_fd=None if listener is None else int(listener),
        )  # fmt: skip
        dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=PATIENCE)
    local_rank = int(os.environ.get("LOCAL_RANK", rank))
    group = ProcessGroup(rank, size, store, local_rank=local_rank, local_size=local_size)
    if group.num_nodes > 1:
        group.own_folders = [data == b"own" for data in group.gather(b"own" if os.environ.get(OWN_FOLDER) else b"")]
    return group


def _check_devices(hardware: Hardware, size: int, local_size: int, profile: Profile) -> None:
    kind = hardware.device.type
    there = num_nvidia_gpus() if kind == "cuda" else 1
    if kind != "cpu" and local_size > there:
        fewer = there * size // local_size
        changes = "".join(f" --set {change}" for change in fewer_processes(profile, fewer))
        have = "one MPS device" if kind == "mps" else f"{there} GPU{'' if there == 1 else 's'}"
        raise HardwareError(
            f"hardware.num_processes is {size}, and this machine has {have}: each process needs one of its own.",
            hint=f"`ftui resume {profile.run.name or 'NAME'}{changes}` goes on with "
            "what is here: the same run and effective batch.",
        )


@contextmanager
def hide_ranks() -> Iterator[None]:
    """A block in which the environment names no ranks: accelerate would wrap the model by them."""
    variables = {name: os.environ.pop(name) for name in PLACE if name in os.environ}
    try:
        yield
    finally:
        os.environ.update(variables)
